import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import http from "node:http";
import { test } from "node:test";
import { createClient } from "../dist/index.js";

test("a client says its version to the server", async (t) => {
  let said;
  const server = http.createServer((request, response) => {
    said = request.headers["user-agent"];
    response.writeHead(503).end();
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  const arbe = createClient({ baseUrl: `http://127.0.0.1:${server.address().port}`, token: "arbe_x" });
  await assert.rejects(arbe.houses.listHouses({}));
  const { version } = JSON.parse(await readFile(new URL("../package.json", import.meta.url), "utf8"));
  assert.match(said, new RegExp(`^arbe-ts/${version.replaceAll(".", "\\.")} node/`));
});
