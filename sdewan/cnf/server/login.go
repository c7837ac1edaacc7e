package server

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"subctl/sdewan/rest"
)

// A session ends after an hour without a request, as LuCI's do, and after a day. If there are too
// many, the one that was not used for the longest time ends: a client whose session has ended logs
// in again.
const (
	sessionIdle = time.Hour
	sessionLife = 24 * time.Hour
	maxSessions = 1024
)

// Whoever guesses passwords waits for each answer, and has few guesses: see guesses. At most
// maxDelayed answers are delayed at once, and the others not.
const (
	guessDelay = time.Second
	maxDelayed = 64
)

const (
	maxForm  = 4 << 10 // bytes of the form
	userName = "root"
)

// logins are the sessions.
type logins struct {
	now     func() time.Time
	delayed chan struct{}
	guesses guesses

	mu       sync.Mutex
	sessions map[[sha256.Size]byte]session // by hash: comparing it reveals nothing of a token
	wrong    int                           // passwords since the last report
	reported time.Time
}

type session struct{ began, used time.Time }

func newLogins(now func() time.Time) *logins {
	return &logins{now: now, delayed: make(chan struct{}, maxDelayed), sessions: map[[sha256.Size]byte]session{}}
}

// PasswordFile returns a function for Options that reads the password from a file, each time: a
// Secret may change. The end of a line after it does not count.
func PasswordFile(name string) func() (string, error) {
	return func() (string, error) {
		f, err := os.Open(name)
		if err != nil {
			return "", fmt.Errorf("reading the password: %w", err)
		}
		defer func() { _ = f.Close() }()
		b, err := io.ReadAll(io.LimitReader(f, maxForm))
		return strings.TrimRight(string(b), "\r\n"), err
	}
}

// login answers with a cookie if the password is right.
func (s *Server) login(w *answer, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxForm+1))
	if err != nil || len(body) > maxForm {
		w.message(http.StatusBadRequest, "Bad request: the form is incomplete or too long")
		return
	}
	password, err := s.Password()
	if err == nil && password == "" {
		err = errors.New("the password is empty: set another one")
	}
	if err != nil {
		s.Log.Error("nobody can log in", "err", err)
		w.message(http.StatusForbidden, "Forbidden: the CNF has no password")
		return
	}
	from := sender(r)
	if !s.logins.guesses.take(from, s.Now()) {
		s.guessed(r, false)
		w.Header().Set("X-LuCI-Login-Required", "yes")
		w.Header().Set("Retry-After", "1")
		w.message(http.StatusForbidden, "Forbidden: too many wrong passwords: try again in a second")
		return
	}
	if !right(string(body), password) {
		s.guessed(r, true)
		w.Header().Set("X-LuCI-Login-Required", "yes")
		w.message(http.StatusForbidden, "Forbidden: wrong user or password")
		return
	}
	s.logins.guesses.wasRight(from, s.Now())
	// Upstream's client reads only the first Set-Cookie, and no other name than sysauth.
	w.Header().Set("Set-Cookie", "sysauth="+s.logins.begin()+"; path="+rest.Base+"; SameSite=Strict; HttpOnly; Secure")
	w.Header().Set("Location", rest.Base)
	w.message(http.StatusFound, "success")
}

// right reports whether a form has the right user and password. Upstream's client does not escape
// the password, which is then everything after its key; other clients do.
func right(form, password string) bool {
	before, literal, _ := strings.Cut(form, "luci_password=")
	equal := func(a, b string) bool {
		x := sha256.Sum256([]byte(a))
		y := sha256.Sum256([]byte(b))
		return subtle.ConstantTimeCompare(x[:], y[:]) == 1
	}
	unescaped := before == "luci_username="+userName+"&" && equal(literal, password)
	values, _ := url.ParseQuery(form) // the valid values of an invalid form, too
	return equal(values.Get("luci_username"), userName) && equal(values.Get("luci_password"), password) || unescaped
}

// guessed reports how many wrong passwords there were, once a minute, and delays the answer to one.
func (s *Server) guessed(r *http.Request, delay bool) {
	l := s.logins
	l.mu.Lock()
	l.wrong++
	wrong := l.wrong
	report := l.now().Sub(l.reported) >= time.Minute
	if report {
		l.wrong, l.reported = 0, l.now()
	}
	l.mu.Unlock()
	if report {
		s.Log.Warn("a wrong password", "from", r.RemoteAddr, "since the last message", wrong)
	}
	if !delay {
		return
	}
	select {
	case l.delayed <- struct{}{}:
		defer func() { <-l.delayed }()
		t := time.NewTimer(guessDelay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.Context().Done():
		}
	default:
	}
}

// begin returns the token of a new session.
func (l *logins) begin() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	token := hex.EncodeToString(b[:])
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if len(l.sessions) >= maxSessions {
		var oldest [sha256.Size]byte
		first := now.Add(time.Second)
		for k, s := range l.sessions {
			if s.used.Before(first) {
				oldest = k
				first = s.used
			}
		}
		delete(l.sessions, oldest)
	}
	l.sessions[sha256.Sum256([]byte(token))] = session{now, now}
	return token
}

// valid reports whether a request belongs to a session, which is then used.
func (l *logins) valid(r *http.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range r.CookiesNamed("sysauth") {
		key := sha256.Sum256([]byte(c.Value))
		s, ok := l.sessions[key]
		if !ok {
			continue
		}
		now := l.now()
		if now.Sub(s.used) < sessionIdle && now.Sub(s.began) < sessionLife {
			s.used = now
			l.sessions[key] = s
			return true
		}
		delete(l.sessions, key)
	}
	return false
}

// end ends the session of a request.
func (l *logins) end(r *http.Request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range r.CookiesNamed("sysauth") {
		delete(l.sessions, sha256.Sum256([]byte(c.Value)))
	}
}
