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

	"github.com/arbe-dev/arbe/web/markup"
	"github.com/klauspost/compress/gzip"
)

//go:embed static
var staticFiles embed.FS

// static holds the scripts and styles of this build. They are compressed on first use: compression takes longer than most
// commands of the command line, which is the same program.
var static = sync.OnceValue(loadAssets)

// assets are files whose addresses contain a hash of the content. Browsers may keep them forever, because changed content has
// another address.
type assets struct {
	// files are the files by the last part of their address: "arbe-1f3a….css".
	files map[string]asset
	// addresses are the addresses by file name: "arbe.css".
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
		panic(err) // impossible: the files are embedded
	}
	for _, f := range files {
		text, err := staticFiles.ReadFile("static/" + f.Name())
		if err != nil {
			panic(err)
		}
		if f.Name() == "arbe.css" {
			text = append(text, markup.Palette()...)
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

// named returns a file by its name.
func (as assets) named(name string) asset {
	return as.files[strings.TrimPrefix(as.addresses[name], "/static/")]
}

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

// send writes a body, compressed if the browser accepts that. If packed is nil, it compresses the body itself.
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
		_, _ = io.Copy(w, bytes.NewReader(body)) // an error means that the browser left
	}
}

// pack compresses a page fast and not well, because each page is sent only once.
func pack(text []byte) []byte {
	z := packers.Get().(*gzip.Writer)
	defer packers.Put(z)
	return packWith(z, text)
}

// packers are reused, because each has a megabyte of buffers.
var packers = sync.Pool{New: func() any { return newPacker(gzip.BestSpeed) }}

// packAsset compresses a file as well as possible, because it is sent many times.
func packAsset(text []byte) []byte { return packWith(newPacker(gzip.BestCompression), text) }

func newPacker(level int) *gzip.Writer {
	z, err := gzip.NewWriterLevel(io.Discard, level)
	if err != nil {
		panic(err) // impossible: the levels are constants
	}
	return z
}

func packWith(z *gzip.Writer, text []byte) []byte {
	var b bytes.Buffer
	z.Reset(&b)
	_, _ = z.Write(text) // a buffer never fails
	_ = z.Close()
	return b.Bytes()
}
