import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cp, mkdtemp, rm, symlink } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

test("the package of a fresh checkout is built, because prepare builds it", async (t) => {
  const root = new URL("..", import.meta.url).pathname;
  const checkout = await mkdtemp(join(tmpdir(), "arbe-package-"));
  t.after(() => rm(checkout, { recursive: true }));
  for (const name of ["package.json", "tsconfig.json", "README.md", "src"]) {
    await cp(join(root, name), join(checkout, name), { recursive: true });
  }
  await symlink(join(root, "node_modules"), join(checkout, "node_modules"));
  const { stdout } = await promisify(execFile)("npm", ["pack", "--json", "--offline"], { cwd: checkout });
  const [packed] = JSON.parse(stdout.slice(stdout.indexOf("[\n")));
  const files = packed.files.map(({ path }) => path);
  for (const name of ["dist/index.js", "dist/index.d.ts", "dist/transport.browser.js", "src/index.ts"]) {
    assert.ok(files.includes(name), `${name} is not in ${files}`);
  }
});
