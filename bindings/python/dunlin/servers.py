"""Training in which the last ranks hold the model, and apply the gradients of the others (parameter servers)."""

from dunlin import _dunlin
from dunlin.errors import DeadlineExceededError

__all__ = ["ParameterServers"]


class ParameterServers(_dunlin.ParameterServers):
    """A model that the last ranks of the job hold, as parameter servers, while the others train.

        servers = dunlin.ParameterServers(model.size, servers=1)
        if servers.is_server:
            servers.serve()
        else:
            for step in range(steps):
                servers.step(model, gradient(model), rate)
            servers.leave()

    The constructor is collective over all ranks, with the same arguments; otherwise it raises InvalidArgumentError on
    all of them. The servers apply stochastic gradient descent: g += weight_decay * w; v = momentum * v + g; w -= rate *
    v. While Python computes, the background thread sends what is due, and serves; without it, calls of Dunlin do. The
    object and its memory last until shutdown(); later calls raise ClosedError.

    count: the number of float32 elements of a model.
    servers: how many ranks serve. Each holds a part of the model. At least one rank has to be left for training.
    asynchronous: False: a step waits for the gradients of all workers, which are averaged. The death of a worker is an
        error. True: a server applies each gradient when it comes. A worker waits for the servers only, and the deaths of
        other workers are no errors.
    momentum, weight_decay: of the servers.
    name: for error messages.

    The death of a server raises PeerDeadError on all workers.
    """

    def __init__(self, count, servers=1, asynchronous=False, momentum=0.0, weight_decay=0.0, name="parameters"):
        super().__init__(count, servers, asynchronous, momentum, weight_decay, name)

    def step(self, model, gradient, learning_rate):
        """Sends `gradient` to the servers, and returns `model`, which gets the parameters after their step.

        model, gradient: `count` float32 elements each. In the first step, `model` has the initial parameters; those of
            the lowest rank count. After an error it is unchanged.
        learning_rate: the same on all workers in every step, unless asynchronous. Otherwise serve() raises
            InvalidArgumentError, and the workers wait in vain.

        Raises DeadlineExceededError after DUNLIN_DEADLINE, which names the server; the step continues then. Raises
        InvalidArgumentError while the last step is in progress, after leave(), and on a server.
        """
        return super().step(model, gradient, learning_rate)

    def start_step(self, model, gradient, learning_rate):
        """Starts step() and returns a Request at once. Until that is over, the arrays must not be used."""
        return super().start_step(model, gradient, learning_rate)

    def serve(self, timeout=None):
        """Servers only: returns when all workers have left.

        Raises DeadlineExceededError if no gradient has been applied for `timeout` seconds (None: DUNLIN_DEADLINE). It
        may be called again then.
        """
        while True:
            before = self.statistics()["updates"]
            try:
                return super().serve(timeout)
            except DeadlineExceededError:
                if self.statistics()["updates"] == before:
                    raise

    def leave(self):
        """Takes this worker out. To be called after its last step, and before shutdown().

        After DeadlineExceededError and Ctrl-C this worker is still leaving, and the next call waits for that again.
        """
        super().leave()

    def statistics(self):
        """A dictionary: "iterations" of a worker; "updates" of the model, at a server, or parameters received; payload
        "bytes_sent"; seconds "waited"."""
        return super().statistics()

    @property
    def name(self):
        """The name that was given to the constructor."""
        return super().name

    @property
    def count(self):
        """The number of elements of a model."""
        return super().count

    @property
    def servers(self):
        """The number of servers."""
        return super().servers

    @property
    def asynchronous(self):
        """Whether the servers apply each worker's gradients by themselves."""
        return super().asynchronous

    @property
    def is_server(self):
        """Whether this rank serves. It is one of the last `servers` ranks then."""
        return super().is_server
