"""What every change of a table shares: begin, claim, publish, take back, refuse."""
