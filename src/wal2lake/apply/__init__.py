"""From changes to what a target must do: pure Arrow and NumPy, no I/O, no JVM, and no Python object per value."""
