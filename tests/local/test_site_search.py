"""Test that search on the site of docs/ finds the right page first, using the site's own search worker in a browser."""

import functools
import json
import re
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser import browser_in

ROOT = Path(__file__).resolve().parents[2]
FIRST = {
    "utilization": "monitoring/",
    "migrate": "migrate/",
    "DLC": "migrate/",
    "deadlock": "monitoring/#when-it-hangs",
    "straggler": "report/",
    "resume": "data/#checkpoints-save-and-resume",
    "GPU": "threads/",
    "hyperparameters": "hyperparameters/",
    "pip": "user-code/#requirements-and-pip",
    "spot": "sagemaker/#stopping-and-spot-instances",
    "exit code": "exit-codes/",
}
# The worker gets the index (0) and answers (1) that it is ready; gets a question (2) and answers with pages (3). Here
# it runs in the page itself, whose virtual time does not pass in a worker.
ASKS = """<pre id=found></pre><script>
const asked = ASKED, found = {};
window.postMessage = ({type, data}) => {
  if (type === 3) found[asked.shift()] = data.items.map(sections => sections[0].location)[0];
  if (asked.length) dispatchEvent(new MessageEvent("message", {data: {type: 2, data: asked[0]}}));
  else document.getElementById("found").textContent = JSON.stringify(found);
};
fetch("search/search_index.json").then(answer => answer.json()).then(
  index => dispatchEvent(new MessageEvent("message", {data: {type: 0, data: {...index, options: {}}}})));
</script><script src="WORKER"></script>"""


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *words) -> None:
        pass


@pytest.fixture
def site(tmp_path, no_leftovers):
    folder = tmp_path / "site"
    subprocess.run([sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", folder], cwd=ROOT, check=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Silent, directory=folder)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_search_finds_the_page_for_users_first(site, tmp_path):
    folder, address = site
    (worker,) = folder.glob("assets/javascripts/workers/search.*.min.js")
    page = ASKS.replace("ASKED", json.dumps(list(FIRST))).replace("WORKER", str(worker.relative_to(folder)))
    (folder / "asks.html").write_text(page)
    shown = browser_in(tmp_path).open(f"{address}/asks.html")
    found = re.search(r'<pre id="found">(.+?)</pre>', shown.dom)
    assert found, shown.complaints
    assert json.loads(found[1]) == FIRST
