"""E-code: small programs that consumers send as text to the producers of a typed channel, and that are verified there.

`frontend` reads and checks a text; what it makes (`program.Program`) is run in one of three forms with equal results,
bit for bit: `interpreter` at once, `columnar` over packs where the program allows it, `native` when LLVM has compiled
it.
"""
