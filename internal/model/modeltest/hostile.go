package modeltest

import (
	"compress/gzip"
	"maps"
	"strings"
)

// event returns an event of a dialect in its wire format.
func event(d Dialect, data string) string {
	if d != Messages {
		return "data: " + data + "\n\n"
	}
	kind := "content_block_delta"
	for _, known := range []string{"message_start", "content_block_start", "message_delta", "content_block_stop", "ping"} {
		if strings.Contains(data, `"type":"`+known+`"`) {
			kind = known
		}
	}
	return "event: " + kind + "\ndata: " + data + "\n\n"
}

// begins are the first events of an answer in each dialect, and says an event that adds TEXT to it.
var (
	begins = map[Dialect]string{
		Chat: `data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}` + "\n\n",
		Messages: event(Messages, `{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}`) +
			event(Messages, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`),
		Responses: event(Responses, `{"type":"response.created","response":{"id":"r","object":"response","status":"in_progress","output":[]}}`) +
			event(Responses, `{"type":"response.output_item.added","output_index":0,"item":{"id":"m","type":"message","role":"assistant","content":[]}}`),
		Gemini: "",
	}
	says = map[Dialect]string{
		Chat:      `{"id":"c","choices":[{"index":INDEX,"delta":{"content":"TEXT"},"logprobs":null}]}`,
		Messages:  `{"type":"content_block_delta","index":INDEX,"delta":{"type":"text_delta","text":"TEXT"}}`,
		Responses: `{"type":"response.output_text.delta","item_id":"m","output_index":INDEX,"content_index":0,"delta":"TEXT"}`,
		Gemini:    `{"candidates":[{"index":INDEX,"content":{"role":"model","parts":[{"text":"TEXT"}]}}]}`,
	}
)

// said returns an event of a dialect that adds a text to the answer, with an index.
func said(d Dialect, index, text string) string {
	return event(d, strings.NewReplacer("INDEX", index, "TEXT", text).Replace(says[d]))
}

// Hostile returns the answers of hostile servers, by name. Each must end its call with an error or with the text so
// far, and must cost little.
func Hostile(d Dialect) map[string]Reply {
	once := func(text string) Reply { return Reply{Garbage: begins[d] + text} }
	endless := func(piece string) Reply {
		// Several at once, because the attack is the amount and not the number of writes.
		many := strings.Repeat(piece, max(1, 8192/len(piece)))
		return Reply{Stream: func(write func(string) bool) {
			for ok := write(begins[d]); ok; ok = write(many) {
			}
		}}
	}
	var bomb strings.Builder
	packed := gzip.NewWriter(&bomb)
	packed.Write([]byte(begins[d] + strings.Repeat(": \n", 1<<20))) //nolint:errcheck // a builder takes everything
	packed.Close()                                                  //nolint:errcheck // a builder takes everything

	all := map[string]Reply{
		"an index of two thousand millions":     once(said(d, "2000000000", "x")),
		"an index of two thousand":              once(said(d, "2000", "x")),
		"a negative index":                      once(said(d, "-1", "x")),
		"a fractional index":                    once(said(d, "1.5", "x")),
		"an index with an exponent":             once(said(d, "2e9", "x")),
		"an index that is a text":               once(said(d, `"2000000000"`, "x")),
		"an index that is an object":            once(said(d, `{"a":1}`, "x")),
		"an index on two lines":                 once("data: " + strings.Replace(strings.TrimPrefix(strings.SplitAfterN(said(d, "2000000000", "x"), "data: ", 2)[1], "data: "), "2000000000", "\ndata: 2000000000", 1)),
		"an index under an escaped key":         once(strings.Replace(said(d, "2000000000", "x"), `index"`, `\u0069ndex"`, 1)),
		"an index under a key in capitals":      once(strings.Replace(said(d, "2000000000", "x"), `index"`, `INDEX"`, 1)),
		"a second index":                        once(strings.Replace(said(d, "0", "x"), `index":0`, `index":0,"index":0`, 1)),
		"a number beyond all numbers":           once(said(d, "0", `","n":1e999,"z":"`)),
		"no number":                             once(said(d, "0", `","n":NaN,"z":"`)),
		"an endless number":                     once(said(d, "0", `","n":`+strings.Repeat("9", 1<<20)+`,"z":"`)),
		"an event of a hundred thousand levels": once(said(d, "0", `","n":`+strings.Repeat("[", 100_000)+strings.Repeat("]", 100_000)+`,"z":"`)),
		"an event of a million values":          once(said(d, "0", `","n":[`+strings.Repeat("{},", 1_000_000)+`1],"z":"`)),
		"an event of five million bytes":        once(said(d, "0", strings.Repeat("x", 5_000_000))),
		"an endless line":                       endless(strings.Repeat("x", 8192)),
		"an endless event":                      endless("data: " + strings.Repeat("x", 8192) + "\n"),
		"endless comments":                      endless(": ping\n\n"),
		"endless empty lines":                   endless("\n"),
		"endless empty pieces":                  endless(said(d, "0", "")),
		"endless events that nobody knows":      endless(event(d, `{"type":"ping","id":"c","choices":[]}`)),
		"a body that is not unpacked":           {Garbage: bomb.String(), Header: map[string]string{"Content-Encoding": "gzip"}},
		"an endless body that is no stream":     {ContentType: "application/json", Stream: endless(" ").Stream},
		"a web page without an end":             {ContentType: "text/html", Stream: endless("<p>hello</p>\n").Stream},
	}
	maps.Copy(all, map[Dialect]map[string]Reply{
		Chat: {
			"a call with an index of two thousand millions": once(event(d, `{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":2000000000,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}}]}`)),
			"a call with a negative index":                  once(event(d, `{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":-7,"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]}}]}`)),
			"ten thousand choices":                          once(event(d, `{"id":"c","choices":[`+strings.Repeat(`{"index":0,"delta":{}},`, 10_000)+`{"index":0}]}`)),
			"an endless refusal":                            endless(event(d, `{"id":"c","choices":[{"index":0,"delta":{"refusal":"no "}}]}`)),
			"endless probabilities":                         endless(event(d, `{"id":"c","choices":[{"index":0,"delta":{},"logprobs":{"content":[{"token":"x","logprob":-1,"bytes":[1,2,3],"top_logprobs":[]}]}}]}`)),
			"a name without an end":                         endless(event(d, `{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"`+strings.Repeat("f", 60)+`","arguments":"1"}}]}}]}`)),
		},
		Messages: {
			"endless pings":         endless("event: ping\ndata: {\"type\":\"ping\"}\n\n"),
			"endless citations":     endless(event(d, `{"type":"content_block_delta","index":0,"delta":{"type":"citations_delta","citation":{"type":"char_location","cited_text":"x","document_index":0,"document_title":"x","start_char_index":0,"end_char_index":1}}}`)),
			"an endless signature":  endless(event(d, `{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"`+strings.Repeat("s", 1000)+`"}}`)),
			"a block without end":   endless(event(d, `{"type":"content_block_stop","index":0}`)),
			"a message without end": endless(event(d, `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":1}}`)),
			"endless beginnings":    endless(event(d, `{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}`)),
		},
		Responses: {
			"an endless refusal": endless(event(d, `{"type":"response.refusal.delta","item_id":"m","output_index":0,"content_index":0,"delta":"no "}`)),
			"endless items":      endless(event(d, `{"type":"response.output_item.added","output_index":1,"item":{"id":"rs","type":"reasoning","summary":[]}}`)),
			"a summary with an index of two thousand millions": once(event(d, `{"type":"response.reasoning_summary_text.delta","item_id":"m","output_index":0,"summary_index":2000000000,"delta":"x"}`)),
		},
		Gemini: {
			"endless calls": endless(event(d, `{"candidates":[{"index":0,"content":{"role":"model","parts":[{"functionCall":{"name":"f","args":{}}}]}}]}`)),
		},
	}[d])
	return all
}
