// node look.mjs CHROMIUM FOLDER PAGE.html…: opens each page as a reader would and prints what was found as JSON.
// Screenshots and PDFs go to FOLDER. Pages hold no script and forbid any; axe is evaluated from outside.
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const [executablePath, folder, ...pages] = process.argv.slice(2);
const VIEWS = {
  desktop: { viewport: { width: 1280, height: 900 }, colorScheme: "light" },
  phone: { viewport: { width: 360, height: 740 }, colorScheme: "light" },
  dark: { viewport: { width: 1280, height: 900 }, colorScheme: "dark" },
};

async function look(browser, file, name, options) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const errors = [];
  const requests = [];
  page.on("console", (m) => ["error", "warning"].includes(m.type()) && errors.push(m.text()));
  page.on("pageerror", (e) => errors.push(String(e)));
  page.on("dialog", (d) => { errors.push(`dialog: ${d.message()}`); d.dismiss(); });
  page.on("request", (r) => r.url().startsWith("file:") || requests.push(r.url()));
  await page.goto(pathToFileURL(file).href);
  const stem = `${folder}/${basename(file, ".html")}-${name}`;
  await page.screenshot({ path: `${stem}-first.png` });
  const seen = await page.evaluate(() => ({
    width: document.documentElement.scrollWidth,
    verdictBottom: document.querySelector("h1").getBoundingClientRect().bottom,
  }));
  if (!file.includes("large")) await page.screenshot({ path: `${stem}.png`, fullPage: true });
  await page.evaluate(() => document.querySelectorAll("details").forEach((d) => d.classList.contains("probe") || (d.open = true)));
  await page.evaluate(axe);
  const result = await page.evaluate(() => axe.run(document, { resultTypes: ["violations"] }));
  const violations = result.violations.map((v) => `${v.impact} ${v.id}: ${v.nodes[0].html.slice(0, 200)} (${v.nodes.length})`);
  if (name === "desktop") await page.pdf({ path: `${stem}.pdf`, preferCSSPageSize: true, printBackground: true });
  await context.close();
  return { ...seen, errors, requests, violations };
}

const browser = await chromium.launch({ executablePath, args: ["--no-sandbox", "--disable-background-networking"] });
const found = {};
for (const file of pages) {
  found[basename(file, ".html")] = {};
  for (const [name, options] of Object.entries(VIEWS)) found[basename(file, ".html")][name] = await look(browser, file, name, options);
}
await browser.close();
console.log(JSON.stringify(found));
