"""Real servers for each kind of tier: `serve(folder)` of each module yields a function that makes a `Tier`.

Each call of that function makes a tier of its own, as another process on another machine would have.
"""
