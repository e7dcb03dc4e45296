package push_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/arbe-dev/arbe/internal/push"
)

// service is a push service, and the browsers behind it, which open what they receive as RFC 8291 says.
type service struct {
	*httptest.Server
	t       testing.TB
	mu      sync.Mutex
	devices []*device
	// status is its answer; 201 if 0.
	status int
	header http.Header
	// got are the notifications of each device, as "title: body url tag".
	got map[*device][]string
	// signers are the keys that signed.
	signers map[string]bool
}

type device struct {
	id      string
	path    string
	key     *ecdh.PrivateKey
	auth    []byte
	address push.Address
}

func newService(t testing.TB) *service {
	s := &service{t: t, got: map[*device][]string{}, signers: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) newDevice(t testing.TB) *device {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	must(t, err)
	d := &device{key: key, auth: make([]byte, 16), path: "/send/" + rand.Text()}
	_, _ = rand.Read(d.auth)
	encode := base64.RawURLEncoding.EncodeToString
	d.address = push.Address{Endpoint: s.URL + d.path, P256dh: encode(key.PublicKey().Bytes()), Auth: encode(d.auth)}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices = append(s.devices, d)
	return d
}

// answers changes the answer of the service.
func (s *service) answers(status int, header http.Header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status, s.header = status, header
}

// sent returns what a device has received since the last call.
func (s *service) sent(d *device) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.got[d]
	s.got[d] = nil
	return got
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.devices, func(d *device) bool { return d.path == r.URL.Path })
	if i < 0 || r.Header.Get("Content-Encoding") != "aes128gcm" || r.Header.Get("TTL") == "" || r.Method != http.MethodPost {
		s.t.Errorf("%s %s with %v", r.Method, r.URL, r.Header)
		return
	}
	if err := s.verify(r.Header.Get("Authorization")); err != nil {
		s.t.Errorf("its signature: %v", err)
	}
	for name := range s.header {
		w.Header().Set(name, s.header.Get(name))
	}
	if s.status != 0 {
		w.WriteHeader(s.status)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		body, err = s.devices[i].open(body)
	}
	var n push.Notification
	if err == nil {
		err = json.Unmarshal(body, &n)
	}
	if err != nil {
		s.t.Errorf("a notification: %v", err)
	}
	s.got[s.devices[i]] = append(s.got[s.devices[i]], strings.Join([]string{n.Title + ": " + n.Body, n.URL, n.Tag}, " "))
	w.WriteHeader(http.StatusCreated)
}

// verify checks who sends (RFC 8292).
func (s *service) verify(authorization string) error {
	token, key, ok := strings.Cut(strings.TrimPrefix(authorization, "vapid t="), ", k=")
	point, err := base64.RawURLEncoding.DecodeString(key)
	if !ok || err != nil {
		return errors.New(authorization)
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return err
	}
	s.signers[key] = true
	parsed, err := jwt.Parse(token, func(*jwt.Token) (any, error) { return public, nil },
		jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience(s.URL), jwt.WithExpirationRequired())
	if err != nil {
		return err
	}
	expires, err := parsed.Claims.GetExpirationTime()
	if err != nil || time.Until(expires.Time) > 24*time.Hour {
		return errors.New("it expires too late")
	}
	if subject, err := parsed.Claims.GetSubject(); err != nil || subject != "https://arbe.example.com" {
		return errors.New("it names " + subject)
	}
	return nil
}

// open opens a message (RFC 8188, RFC 8291).
func (d *device) open(body []byte) ([]byte, error) {
	if len(body) < 21+65 || body[20] != 65 || len(body) > 4096 {
		return nil, errors.New("it has no header, or is too long")
	}
	salt, sender, sealed := body[:16], body[21:86], body[86:]
	public, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	shared, err := d.key.ECDH(public)
	if err != nil {
		return nil, err
	}
	ikm, err := hkdf.Key(sha256.New, shared, d.auth, "WebPush: info\x00"+string(d.key.PublicKey().Bytes())+string(sender), 32)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	text, err := gcm.Open(nil, nonce, sealed, nil)
	if err != nil {
		return nil, err
	}
	text, end, ok := bytes.Cut(text, []byte{2})
	if !ok || strings.Trim(string(end), "\x00") != "" {
		return nil, errors.New("its padding is wrong")
	}
	return text, nil
}
