"""Where the servers of the tests are."""

PORT = 8765
TOKEN = "secret-of-this-run"
HOME = f"http://127.0.0.1:{PORT}"
