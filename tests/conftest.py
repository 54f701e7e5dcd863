"""What every test process needs, however it was started."""

import signal

# A shell that starts tests in the background has them ignore Ctrl-C, which
# Python and its subprocesses then never notice; several tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
