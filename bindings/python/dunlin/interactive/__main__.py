"""The command `python3 -m dunlin.interactive`."""

import argparse
import sys

import dunlin.errors

DESCRIPTION = "Starts and stops the ranks of a Dunlin job for notebooks: engines of an ipyparallel cluster on this host."
EPILOG = """In a notebook, dunlin.interactive.connect() connects to the cluster. The profile is a folder of IPython,
profile_NAME: startup files in it run on the engines. Settings of Dunlin (DUNLIN_...) and the working directory are
those of `start`."""


def rank_count(text):
    """The number of ranks, within the limits of dunlin-run."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 4096:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 4096")
    return int(text)


def make_parser():
    parser = argparse.ArgumentParser(prog="python3 -m dunlin.interactive", description=DESCRIPTION, epilog=EPILOG,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    start = commands.add_parser("start", help="start the ranks, and run until Ctrl-C or `stop`",
                                usage="%(prog)s -n RANKS [--profile NAME] [-- OPTIONS OF DUNLIN-RUN]",
                                epilog="Options of dunlin-run may follow, such as: -- --bind none")
    start.add_argument("-n", "-np", "--ranks", type=rank_count, required=True, metavar="RANKS", help="number of ranks")
    stop = commands.add_parser("stop", help="stop the cluster that `start` has started")
    for command in (start, stop):
        command.add_argument("--profile", default="dunlin", metavar="NAME",
                             help="profile of IPython, one for each cluster at a time (default: dunlin)")
    commands.add_parser("engine", add_help=False, help="run the engine of this rank, under any launcher; `start` does "
                                                       "it (takes the options of ipengine)")
    return parser


def run(arguments):
    if arguments[:1] == ["engine"]:
        from dunlin.interactive._engine import run_engine
        return run_engine(arguments[1:])
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = make_parser().parse_args(arguments[:end])
    from dunlin.interactive import _service
    try:
        if options.command == "start":
            return _service.start(options.profile, options.ranks, arguments[end + 1:])
        _service.stop(options.profile)
        return 0
    except (_service.StartError, dunlin.errors.Error, OSError) as error:
        print(f"dunlin.interactive: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    try:
        sys.exit(run(sys.argv[1:]))
    except ImportError as error:
        print(error, file=sys.stderr)  # it names the module
        sys.exit(1)
