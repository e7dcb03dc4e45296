package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

//go:embed static
var staticFiles embed.FS

// static is every script and style of this build. It is made when it is first used: packing takes longer than most
// verbs of the command line, which are the same program.
var static = sync.OnceValue(loadAssets)

// assets are files under addresses that name their content: such an address may be kept for ever, and
// a new build is a new address.
type assets struct {
	// files by the last part of their address, "arbe-1f3a….css".
	files map[string]asset
	// addresses by the file's own name, "arbe.css".
	addresses map[string]string
}

type asset struct {
	contentType   string
	plain, packed []byte
}

func loadAssets() assets {
	as := assets{files: map[string]asset{}, addresses: map[string]string{}}
	files, err := staticFiles.ReadDir("static")
	if err != nil {
		panic(err) // embedded: a build without it does not exist
	}
	for _, f := range files {
		text, err := staticFiles.ReadFile("static/" + f.Name())
		if err != nil {
			panic(err)
		}
		if f.Name() == "arbe.css" {
			text = append(text, terminalPalette()...)
		}
		as.add(f.Name(), text)
	}
	return as
}

func (as assets) add(name string, text []byte) {
	sum := sha256.Sum256(text)
	ext := path.Ext(name)
	address := strings.TrimSuffix(name, ext) + "-" + hex.EncodeToString(sum[:6]) + ext
	as.addresses[name] = "/static/" + address
	as.files[address] = asset{contentType: mime.TypeByExtension(ext), plain: text, packed: packAsset(text)}
}

// url is the address of the file with this name.
func (as assets) url(name string) string { return as.addresses[name] }

// ServeHTTP serves GET /static/{name}.
func (as assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file, ok := as.files[r.PathValue("name")]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	w.Header().Set("Content-Type", file.contentType)
	send(w, r, http.StatusOK, file.plain, file.packed)
}

// send writes a body, packed when the browser takes that. packed may be nil: then it is packed here.
func send(w http.ResponseWriter, r *http.Request, status int, plain, packed []byte) {
	w.Header().Add("Vary", "Accept-Encoding")
	body := plain
	if len(plain) > 1024 && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		if packed == nil {
			packed = pack(plain)
		}
		body = packed
		w.Header().Set("Content-Encoding", "gzip")
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = io.Copy(w, bytes.NewReader(body)) // whoever left has no use for the rest
	}
}

// pack packs a page, which is sent once: quickly rather than well.
func pack(text []byte) []byte {
	z := packers.Get().(*gzip.Writer)
	defer packers.Put(z)
	return packWith(z, text)
}

// packers are kept, since each has buffers of a megabyte.
var packers = sync.Pool{New: func() any { return newPacker(gzip.BestSpeed) }}

// packAsset packs what is sent many times.
func packAsset(text []byte) []byte { return packWith(newPacker(gzip.BestCompression), text) }

func newPacker(level int) *gzip.Writer {
	z, err := gzip.NewWriterLevel(io.Discard, level)
	if err != nil {
		panic(err) // a level that there is not
	}
	return z
}

func packWith(z *gzip.Writer, text []byte) []byte {
	var b bytes.Buffer
	z.Reset(&b)
	_, _ = z.Write(text) // a buffer takes everything
	_ = z.Close()
	return b.Bytes()
}
