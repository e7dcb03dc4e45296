import type { Delta } from "./gen/arbe/v1/entry_pb.js";

/** The turn in which a bot's model writes what the delta has; empty if the delta has something else. */
export function turnOf(delta: Delta): string {
  return /^turn\.([^.]+)\.[^~]*~/.exec(delta.entryId)?.[1] ?? "";
}

/** Reads from deltas what a bot's model is writing for one step of a turn. */
export class Draft {
  /** Tells the calls of a model for the same step apart. */
  #attempt = "";
  /** How many bytes of the deltas came, and the beginning of a line whose end has not come. */
  #at = 0;
  #line: Uint8Array = new Uint8Array();
  /** Deltas are missing, so that the text cannot be continued before the step is complete. */
  #missed = false;
  #block = 0;
  /** White space at the end of what came, which is held back because the text of the entry ends without it. */
  #space = "";
  #text = "";

  /** Returns the text that a delta adds, and whether the model was cut off, so that the text until now no longer counts. */
  add({ entryId, offset, data }: Delta): { text: string; again: boolean } {
    let again = false;
    if (entryId !== this.#attempt) {
      again = this.#text !== "";
      this.#attempt = entryId;
      this.#at = 0;
      this.#line = new Uint8Array();
      this.#missed = false;
      this.#block = 0;
      this.#space = this.#text = "";
    }
    const known = this.#at - Number(offset);
    this.#missed ||= known < 0;
    if (this.#missed || known >= data.length) return { text: "", again };
    this.#at += data.length - known;
    const came = new Uint8Array(this.#line.length + data.length - known);
    came.set(this.#line);
    came.set(data.subarray(known), this.#line.length);
    const complete = came.lastIndexOf(10) + 1; // after the last newline
    this.#line = came.subarray(complete);
    let text = "";
    for (const line of new TextDecoder().decode(came.subarray(0, complete)).split("\n")) {
      if (line !== "") text += this.#write(JSON.parse(line));
    }
    return { text, again };
  }

  #write(chunk: { kind: string; block?: number; text?: string }): string {
    if (chunk.kind !== "text") return "";
    const block = chunk.block ?? 0;
    if (block !== this.#block && this.#text !== "") this.#space += "\n\n";
    this.#block = block;
    let more = this.#space + (chunk.text ?? "");
    if (this.#text === "") more = more.trimStart();
    const text = more.trimEnd();
    this.#space = more.slice(text.length);
    this.#text += text;
    return text;
  }

  /** Returns what add has not returned of the step's whole text; again says that rest is all of it. */
  rest(whole: string): { rest: string; again: boolean } {
    whole = whole.trim();
    return whole.startsWith(this.#text) ? { rest: whole.slice(this.#text.length), again: false } : { rest: whole, again: true };
  }
}
