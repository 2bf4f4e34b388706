"""A school of fish that knows where a predator is though no fish does: dunlin-run -n 4 python3 fish_school.py

Each rank is some of the fish. In every step a fish measures distance and direction of the predator, both with noise,
improves its estimate by a step of stochastic gradient descent, and averages it with the fish within its sight: others
in every step, so the neighbors of a rank change all the time (BlueFog, section IV-B; Tu, Sayed 2011). Then it swims:
apart from fish that are too near, and into a ring around the predator (encircle) or away from it (disperse).

apps/consensus has the same in C++, with more of the fish's manners.
"""

import argparse

import dunlin
import numpy

# Meters and seconds.
SIGHT = 3.0
COMFORT = 0.3  # fish nearer than that swim apart
RING = 2.0  # to encircle the predator at
SAFE = 6.0  # where a fleeing fish comes to rest
SPEED = 1.0
NOISE = 0.05  # of angles, and of distances relative to them
LEARNING_RATE = 0.5
TIME_STEP = 0.05
TURN = 0.1  # of the difference to where it wants to go, a fish makes up for in a step
PREDATOR = numpy.array([1.5, 0.0])


def lengths(vectors):
    return numpy.linalg.norm(vectors, axis=-1, keepdims=True)


def directions(vectors):
    return vectors / numpy.maximum(lengths(vectors), 1e-12)


def cut(velocities):
    """No faster than fish can."""
    return velocities / numpy.maximum(lengths(velocities) / SPEED, 1)


class School:
    """The fish of this rank: rows of arrays."""

    def __init__(self, fish, behavior):
        self.random = numpy.random.default_rng(dunlin.rank())
        self.fish = fish
        self.behavior = behavior
        angles = self.random.uniform(0, 2 * numpy.pi, fish)
        self.positions = 1.5 * numpy.sqrt(self.random.uniform(size=(fish, 1))) * self.unit(angles)
        self.velocities = numpy.zeros((fish, 2))
        self.estimates = self.positions.copy()  # nothing is known yet

    @staticmethod
    def unit(angles):
        return numpy.stack([numpy.cos(angles), numpy.sin(angles)], axis=1)

    def look(self):
        """Stands for the eyes of the fish: finds which fish each one sees. Estimates go to neighbors only."""
        everybody = dunlin.all_gather(self.positions).reshape(-1, 2)
        offsets = everybody[:, None] - everybody[None]
        sees = lengths(offsets)[..., 0] <= SIGHT
        numpy.fill_diagonal(sees, False)
        first = dunlin.rank() * self.fish
        mine = slice(first, first + self.fish)
        degrees = sees.sum(axis=1)
        # Metropolis-Hastings: symmetric, so that the mean of all estimates stays.
        self.weights = sees[mine] / (1 + numpy.maximum(degrees[mine, None], degrees[None]))
        self.offsets, self.sees = offsets[mine], sees[mine]
        near = sees[mine].reshape(self.fish, -1, self.fish).any(axis=(0, 2))
        self.neighbors = [rank for rank in numpy.flatnonzero(near).tolist() if rank != dunlin.rank()]

    def learn(self):
        """A step down the gradient of (d - u . (x - w))^2 / 2, with d, u the measured distance and direction."""
        offsets = self.positions - PREDATOR
        measured = lengths(offsets) * (1 + NOISE * self.random.normal(size=(self.fish, 1)))
        u = self.unit(numpy.arctan2(offsets[:, 1], offsets[:, 0]) + NOISE * self.random.normal(size=self.fish))
        residuals = measured - (u * (self.positions - self.estimates)).sum(axis=1, keepdims=True)
        self.estimates -= LEARNING_RATE * residuals * u

    def average(self):
        """Averages with the neighbors of this step. Being a neighbor is mutual."""
        known = numpy.zeros((dunlin.size(), self.fish, 2))
        known[dunlin.rank()] = self.estimates
        theirs = dunlin.neighbor_gather(self.estimates, self.neighbors, self.neighbors, "estimates")
        for rank, estimates in zip(self.neighbors, theirs):
            known[rank] = estimates
        own = 1 - self.weights.sum(axis=1, keepdims=True)
        self.estimates = own * self.estimates + self.weights @ known.reshape(-1, 2)

    def swim(self):
        nearness = numpy.maximum(0, 1 - lengths(self.offsets) / COMFORT)
        apart = (nearness * directions(self.offsets)).sum(axis=1)
        outwards = self.positions - self.estimates
        if self.behavior == "encircle":
            along = directions(outwards)[:, ::-1] * [-1, 1]
            # Neighbors push along the ring, the more the nearer, so that it closes.
            nearness = self.sees * COMFORT / numpy.maximum(lengths(self.offsets)[..., 0], COMFORT)
            push = (nearness * (directions(self.offsets) * along[:, None]).sum(axis=2)).sum(axis=1, keepdims=True)
            to_ring = numpy.clip(2 * (RING - lengths(outwards)), -1, 1)
            wanted = to_ring * directions(outwards) + (0.5 + 0.6 * numpy.clip(push, -1, 1)) * along
        else:
            wanted = (lengths(outwards) < SAFE) * directions(outwards)
        self.velocities += TURN * (cut(SPEED * (apart + wanted)) - self.velocities)
        self.positions = self.positions + TIME_STEP * self.velocities

    def step(self):
        self.look()
        self.learn()
        self.average()
        self.swim()


def draw(path, moments):
    """The school at a few moments: fish, where they think the predator is, and where it is."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(moments), figsize=(3.2 * len(moments), 3.4), sharex=True, sharey=True)
    for axis, (time, positions, estimates) in zip(axes, moments):
        axis.scatter(*estimates.T, s=8, color="tab:orange", label="estimates")
        axis.scatter(*positions.T, s=14, color="tab:blue", label="fish")
        axis.scatter(*PREDATOR, marker="x", color="tab:red", label="predator")
        axis.set_title(f"{time:.0f} s")
        axis.set_aspect("equal")
    axes[0].legend(loc="lower left", fontsize="small")
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--behavior", choices=["encircle", "disperse"], default="encircle")
    parser.add_argument("--fish", type=int, default=8, help="per rank")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--figure", help="a file (.svg, .png) that rank 0 draws the school into; needs matplotlib")
    options = parser.parse_args()
    dunlin.init()
    school = School(options.fish, options.behavior)
    moments = []
    for step in range(options.steps + 1):
        if step % max(1, options.steps // 4) == 0:
            positions, estimates = (dunlin.all_gather(x).reshape(-1, 2) for x in (school.positions, school.estimates))
            moments.append((step * TIME_STEP, positions, estimates))
            distances = lengths(positions - PREDATOR)
            error = numpy.sqrt((lengths(estimates - PREDATOR) ** 2).mean())
            if dunlin.rank() == 0:
                print(f"{step * TIME_STEP:5.1f} s: the predator is {distances.min():.2f} to {distances.max():.2f} m "
                      f"away, estimates are off by {error:.2f} m", flush=True)
        school.step()
    if options.figure and dunlin.rank() == 0:
        draw(options.figure, moments)
    dunlin.shutdown()


if __name__ == "__main__":
    main()
