"""Would the tests notice? One small change to the code at a time, and the tests that need no server run against it.

The changes are Cosmic Ray's, which works on the source text: constants of a module, decorated functions and the bodies
of dataclasses are changed as well (mutmut changes only what stands in plain functions). Its own runner tries every
mutant there is, in place and one after the other; here a random sample is tried, in copies, on all cores.
"""

PROFILE = "mutants"  # Hypothesis's settings
# What the tests of a copy are told: where it is, and where it stands how long each test takes.
COPY, DURATIONS = "WAL2LAKE_MUTANTS_COPY", "WAL2LAKE_MUTANTS_DURATIONS"
