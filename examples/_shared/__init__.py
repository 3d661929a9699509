"""What `train_gpt.py` and `train_resnet.py` share: options, devices, uploads, checkpoints, the loop and its reports."""
