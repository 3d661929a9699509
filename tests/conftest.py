"""What all Python tests share."""
