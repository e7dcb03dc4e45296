import type { Delta } from "./gen/arbe/v1/entry_pb.js";

/** Returns the turn in which a bot's model writes the text in a delta; empty if the delta has something else. */
export function turnOf(delta: Delta): string {
  return /^turn\.([^.]+)\.[^~]*~/.exec(delta.entryId)?.[1] ?? "";
}

/** Reads from deltas the text that a bot's model is writing in one step of a turn. */
export class Draft {
  /** The id of the deltas, which distinguishes the model's calls for the same step. */
  #attempt = "";
  /** The number of bytes that have arrived in deltas, and the beginning of a line whose end has not arrived. */
  #at = 0;
  #line: Uint8Array = new Uint8Array();
  /** Whether deltas are missing, so that the text cannot continue until the step is complete. */
  #missed = false;
  #block = 0;
  /** The white space at the end of the text so far. It is held back, because the text of the entry ends without it. */
  #space = "";
  #text = "";

  /** Returns the text that a delta adds. again says that the model was cut off, so the text until now no longer counts. */
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

  /** Returns the part of the step's whole text that add has not returned. again says that rest is the whole text. */
  rest(whole: string): { rest: string; again: boolean } {
    whole = whole.trim();
    return whole.startsWith(this.#text) ? { rest: whole.slice(this.#text.length), again: false } : { rest: whole, again: true };
  }
}
