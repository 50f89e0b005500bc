"""What the commands over HTTP share: a client, files of pipelines, and how answers are shown."""
