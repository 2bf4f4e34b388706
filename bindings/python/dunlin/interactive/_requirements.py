"""ipyparallel, or an error that says what to install."""

try:
    import ipyparallel
except ImportError as error:
    raise ImportError("dunlin.interactive needs ipyparallel: install it by `python3 -m pip install ipyparallel`, or "
                      f"Debian's package python3-ipyparallel ({error})") from error

if ipyparallel.version_info[:2] < (7, 1):
    raise ImportError(f"dunlin.interactive needs ipyparallel 7.1 or later, and found {ipyparallel.__version__}: "
                      "`python3 -m pip install --upgrade ipyparallel`")
