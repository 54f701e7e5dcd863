"""What users see while something takes long: which phase it is in, and for how many seconds.

`phases` is what the passes of compiling and profiling call. `display` draws, and is imported when
something has taken two seconds.
"""

from ipu_keras.progress.phases import phase, showing

__all__ = ["phase", "showing"]
