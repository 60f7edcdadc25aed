"""The live page: `echannel serve`."""
