"""What every test process needs, however it was started."""

import signal

from hypothesis import settings

# A shell that starts tests in the background has them ignore Ctrl-C, which
# Python and its subprocesses then never notice; several tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A machine that runs other tests meanwhile takes as long as it takes.
settings.register_profile("project", deadline=None)
settings.load_profile("project")
