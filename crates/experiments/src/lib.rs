//! Published storage experiments, repeated side by side on several targets.
