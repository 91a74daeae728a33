"""Real servers for each kind of remote: `serve(folder)` of each module yields a function that makes a `Storage`.

Each call of that function makes a remote of its own, as another process on another machine would have.
"""
