"""The managed pipeline, without Spark: what it does in which order; its jobs and its stream go out through a port."""
