"""What a client keeps in a file between its runs, and a crash of the client leaves as it was."""

import os
import pickle


class Kept:
    """A state that is kept. What inherits this is made of a number of units, in which nothing was done yet."""

    @classmethod
    def read(cls, path, units):
        if not os.path.exists(path):
            return cls(units)
        with open(path, "rb") as file:
            return pickle.load(file)

    def save(self, path):
        with open(path + ".new", "wb") as file:
            pickle.dump(self, file)
        os.replace(path + ".new", path)
