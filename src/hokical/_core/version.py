"""The version, in one place."""

VERSION = "0.5.0"
