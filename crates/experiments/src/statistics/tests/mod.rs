mod differences;
mod figures;
mod simulation;
