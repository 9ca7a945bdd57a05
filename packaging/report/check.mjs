// Checks the report page of broken sandbox nodes: check.sh runs it, with the path of calicoctl-win.

import { execFileSync, spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

// The packages are in the cache, not beside this file.
const tools = createRequire(join(process.env.NODE_TOOLS, "node_modules", "x.js"));
const { HtmlValidate } = tools("html-validate");
const puppeteer = tools("puppeteer-core");
const axe = readFileSync(tools.resolve("axe-core/axe.min.js"), "utf8");

const [program, kept] = [resolve(process.argv[2]), process.argv[3]];
const work = mkdtempSync(join(tmpdir(), "report-"));
const RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"];
const CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
let wrong = 0;

function fail(page, what) {
  wrong += 1;
  console.error(`${page}: ${what}`);
}

function run(sandbox, words, ...more) {
  return spawnSync(program, [...words.split(" "), ...more, "--sandbox", sandbox], { encoding: "utf8" });
}

// What is broken, and how.
const BROKEN = {
  healthy: () => {},
  network: (sandbox) =>
    edit(sandbox, (yaml) => yaml.replace("vsid: 4096", `vsid: 4200
    policies:
    - {Type: RemoteSubnetRoute, DestinationPrefix: 192.168.3.0/26, IsolationId: 4200, ProviderAddress: 10.20.0.4}
    - {Type: RemoteSubnetRoute, DestinationPrefix: 192.168.4.0/26, IsolationId: 4096, ProviderAddress: <b>10.20.0.5</b>}`)),
  address: (sandbox) => edit(sandbox, (yaml) => yaml.replace("  - 10.20.0.21/24\n", "  - 169.254.7.9/16\n")),
  services: (sandbox) => edit(sandbox, (yaml) => yaml.replace("    pid: 4004\n", "")),
  failed: (sandbox) => run(sandbox, "apply -y --set services.felixLogSeverity=debug --sandbox-fault", "put running CalicoFelix#2=fail"),
  interrupted: (sandbox) => run(sandbox, "apply -y --set calicoNetwork.vxlan.vxlanVNI=5000 --sandbox-fault", "put network Calico=exit-before"),
  deleted: (sandbox) => rmSync(join(sandbox, "C/Program Files/containerd/cni/conf/10-calico.conf")),
  runtime: (sandbox) => edit(sandbox, (yaml) => yaml.replace(/(\n  containerd:\n(?:    .*\n)*?)    pid: \d+\n/, "$1")),
  away: (sandbox) => edit(sandbox, (yaml) => `${yaml}faults: [api down]\n`),
  expired: (sandbox) => edit(sandbox, (yaml) => `${yaml}faults: [api expired-certificate]\n`),
  unready: (sandbox) => object(sandbox, "nodes", "win-a1", (node) => {
    Object.assign(node.status.conditions.find((one) => one.type === "Ready"), { status: "False", reason: "KubeletNotReady" });
  }),
  vni: (sandbox) => object(sandbox, "felixconfigurations.crd.projectcalico.org", "default", (felix) => { felix.spec.vxlanVNI = 5000; }),
  affinity: (sandbox) => object(sandbox, "ipamconfigs.crd.projectcalico.org", "default", (ipam) => { ipam.spec.strictAffinity = false; }),
  bare: (sandbox) => {
    rmSync(sandbox, { recursive: true });
    run(sandbox, "service status");
  },
};

// Pages on which nothing is wrong: nothing else was looked at, or the failed run was reverted.
const NOTHING = ["healthy", "failed", "bare"];

// Edits an object of the sandbox's cluster.
function object(sandbox, kind, name, change) {
  const file = join(sandbox, "cluster/cluster.json");
  const cluster = JSON.parse(readFileSync(file, "utf8"));
  change(cluster.objects.find(([id]) => id.kind === kind && id.name === name)[1]);
  writeFileSync(file, JSON.stringify(cluster));
}

function edit(sandbox, change) {
  const file = join(sandbox, "node.yaml");
  const text = readFileSync(file, "utf8");
  const changed = change(text);
  if (text === changed) throw new Error("the edit changes nothing");
  writeFileSync(file, changed);
}

function pages() {
  const first = join(work, "first");
  const installed = run(first, "install --yes");
  if (installed.status !== 0) throw new Error(installed.stdout + installed.stderr);
  return Object.entries(BROKEN).map(([name, breaks]) => {
    const sandbox = join(work, name);
    cpSync(first, sandbox, { recursive: true });
    breaks(sandbox);
    const zip = join(work, `${name}.zip`);
    const said = run(sandbox, "diagnose --out", zip);
    if (said.status !== 0) throw new Error(said.stdout + said.stderr);
    const file = join(work, `${name}.html`);
    writeFileSync(file, execFileSync("unzip", ["-p", zip, "*/report.html"]));
    return [name, file];
  });
}

async function open(browser, [name, file], width, scheme) {
  const at = `${name} ${width} ${scheme}`;
  const page = await browser.newPage();
  await page.setViewport({ width, height: 900 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  page.on("request", (request) => {
    if (!/^(file|data):/.test(request.url())) fail(at, `it fetches ${request.url()}`);
  });
  page.on("console", (message) => fail(at, `console: ${message.text()}`));
  page.on("pageerror", (error) => fail(at, `error: ${error}`));
  await page.goto(`file://${file}`);
  // What is wrong is named without scrolling.
  const causes = await page.evaluate(() => [...document.querySelectorAll("h2.id")]
    .map((one) => [one.textContent, one.getBoundingClientRect().bottom <= window.innerHeight]));
  const below = causes.filter(([, seen]) => !seen).map(([id]) => id);
  if (below.length > 0) fail(at, `below the first screen: ${below.join(", ")}`);
  if ((causes.length === 0) !== NOTHING.includes(name)) fail(at, `it names ${causes.length} causes`);
  for (const opened of [false, true]) {
    await page.evaluate((open) => document.querySelectorAll("details").forEach((one) => { one.open = open; }), opened);
    const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    if (wide > 0) fail(at, `the page is ${wide} pixels wider than the window, with its details ${opened ? "open" : "closed"}`);
  }
  const passed = await judge(page, (what) => fail(at, what));
  if (kept) {
    await page.evaluate(() => document.querySelectorAll("details").forEach((one) => { one.open = false; }));
    await page.screenshot({ path: join(kept, `${name}-${width}-${scheme}.png`), fullPage: true });
  }
  await page.close();
  return passed;
}

// axe-core runs in the page. Returns how many rules it passes.
async function judge(page, complain) {
  await page.evaluate(axe);
  const found = await page.evaluate((rules) => window.axe.run({ runOnly: rules }), RULES);
  for (const rule of found.violations) {
    complain(`${rule.id} (${rule.impact}): ${rule.nodes.slice(0, 2).map((node) => node.html.slice(0, 200)).join("\n  ")}`);
  }
  return found.passes.length;
}

const browser = await puppeteer.launch({ executablePath: process.env.CHROMIUM || "/usr/bin/chromium", args: CHROMIUM });
try {
  if (kept) mkdirSync(kept, { recursive: true });
  // The checks themselves: a page without a title and a language, with a script that fetches, is refused.
  const bad = "<html><body><h3>x</h3><img src='x.png'></body></html>";
  const empty = await browser.newPage();
  await empty.setContent(bad);
  let complaints = 0;
  await judge(empty, () => { complaints += 1; });
  if (complaints < 3) fail("axe-core", "it finds nothing wrong with a bad page");
  await empty.close();
  const validator = new HtmlValidate({ extends: ["html-validate:recommended"] });
  if ((await validator.validateString(bad)).valid) fail("html-validate", "it finds nothing wrong with a bad page");

  for (const page of pages()) {
    const text = readFileSync(page[1], "utf8");
    if (kept) writeFileSync(join(kept, `${page[0]}.html`), text);
    const report = await validator.validateString(text);
    for (const message of report.results.flatMap((result) => result.messages)) {
      fail(page[0], `html-validate ${message.ruleId} at line ${message.line}: ${message.message}`);
    }
    let passed = 0;
    for (const width of [1280, 400]) {
      for (const scheme of ["light", "dark"]) passed = await open(browser, page, width, scheme);
    }
    console.log(`${page[0]}: ${passed} rules of axe-core pass, at 1280 and 400 pixels, light and dark`);
  }
} finally {
  await browser.close();
  rmSync(work, { recursive: true, force: true });
}
process.exit(wrong > 0 ? 1 : 0);
