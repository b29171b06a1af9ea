// Chromium without a window, told what to do through pipes (the DevTools protocol).

import { spawn, spawnSync } from "node:child_process";
import { folder } from "./ground.js";

const NAMES = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/** The program, if there is one. */
export function find() {
  const wanted = process.env.EXTANT_CHROMIUM ? [process.env.EXTANT_CHROMIUM] : NAMES;
  return wanted.find((name) => spawnSync(name, ["--version"]).status === 0);
}

/** Its version. */
export function version(program) {
  return spawnSync(program, ["--version"]).stdout.toString().trim();
}

/** A page of a browser. */
export class Page {
  #child;
  #last = 0;
  #waiting = new Map();
  #session;
  /** What the page has logged, and which faults it has. */
  faults = [];
  requests = [];

  static async open(program, url) {
    const page = new Page();
    await page.#start(program, url);
    return page;
  }

  async #start(program, url) {
    const options = [
      "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--no-first-run",
      "--disable-dev-shm-usage", `--user-data-dir=${folder()}`, "about:blank",
    ];
    this.#child = spawn(program, options, { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
    let text = "";
    this.#child.stdio[4].on("data", (bytes) => {
      text += bytes;
      const messages = text.split("\0");
      text = messages.pop();
      for (const message of messages) this.#hear(JSON.parse(message));
    });
    const { targetInfos } = await this.send("Target.getTargets");
    const { targetId } = targetInfos.find(({ type }) => type === "page");
    const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
    this.#session = sessionId;
    for (const domain of ["Page", "Runtime", "Network", "DOM", "Accessibility", "Log"]) {
      await this.send(`${domain}.enable`);
    }
    await this.send("Page.navigate", { url });
  }

  #hear({ id, method, params, result, error }) {
    if (method === "Runtime.exceptionThrown") this.faults.push(params.exceptionDetails.text);
    if (method === "Log.entryAdded" && params.entry.level === "error") this.faults.push(params.entry.text);
    if (method === "Network.requestWillBeSent") this.requests.push(params.request.url);
    const { resolve, reject } = this.#waiting.get(id) ?? {};
    this.#waiting.delete(id);
    if (error) reject?.(new Error(error.message));
    else resolve?.(result);
  }

  send(method, params = {}) {
    const id = ++this.#last;
    // The browser has no session.
    const sessionId = method.startsWith("Browser.") ? undefined : this.#session;
    const message = { id, method, params, sessionId };
    this.#child.stdio[3].write(`${JSON.stringify(message)}\0`);
    return new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
  }

  /** The value of an expression in the page. */
  async value(expression) {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", {
      expression, awaitPromise: true, returnByValue: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  }

  /** Waits until an expression holds. */
  async until(expression, seconds = 30) {
    const end = Date.now() + seconds * 1000;
    for (;;) {
      const found = await this.value(expression).catch(() => undefined);
      if (found) return found;
      if (Date.now() > end) {
        const status = await this.value(`document.getElementById("status")?.textContent`);
        throw new Error(`it never came that ${expression}; the page says: ${status}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }

  /** Gives the page's field of files a file. */
  async choose(path) {
    const { root } = await this.send("DOM.getDocument");
    const { nodeId } = await this.send("DOM.querySelector", { nodeId: root.nodeId, selector: "#file" });
    await this.send("DOM.setFileInputFiles", { nodeId, files: [path] });
  }

  /** Presses a key. */
  async press(key) {
    const codes = { Tab: 9, Enter: 13, ArrowDown: 40, ArrowUp: 38, Home: 36, End: 35, Backspace: 8 };
    const event = { key, code: key, windowsVirtualKeyCode: codes[key] };
    if (key === "Enter") event.text = "\r";
    await this.send("Input.dispatchKeyEvent", { type: "keyDown", ...event });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...event });
  }

  async close() {
    await this.send("Browser.close").catch(() => {});
    this.#child.kill();
  }
}
