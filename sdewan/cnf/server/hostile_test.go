package server

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest"
)

// Whoever reaches the port can neither read nor change anything, nor keep others from it.
func TestHostileClients(t *testing.T) {
	t.Run("no session, or a made-up one: nothing but 403, before the body is read", func(t *testing.T) {
		c := newCNF(t, "")
		for _, l := range rest.Collections {
			for _, path := range []string{l.Path(), l.ItemPath("x")} {
				for _, method := range []string{"GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"} {
					for _, cookie := range []string{
						"",
						"sysauth=",
						"sysauth=" + strings.Repeat("0", 32),
						"other=1; sysauth=x",
					} {
						r := httptest.NewRequest(method, "https://192.0.2.1"+path, io.NopCloser(untouchable{t}))
						r.Header.Set("Cookie", cookie)
						w := httptest.NewRecorder()
						c.Handler().ServeHTTP(w, r)
						require.Equal(t, 403, w.Code)
						require.Empty(t, w.Header().Get("Set-Cookie"))
					}
				}
			}
		}
		require.Zero(t, c.changes.Load())
	})
	t.Run("an empty password lets nobody in", func(t *testing.T) {
		c := newCNF(t, "")
		c.Password = func() (string, error) { return "", nil }
		code, _ := c.do("", "POST", rest.Base, "luci_username=root&luci_password=")
		require.Equal(t, 403, code)
	})
	t.Run("forms", func(t *testing.T) {
		for form, want := range map[string]bool{
			"luci_username=root&luci_password=" + password:                 true,
			"luci_username=root&luci_password=a%26b%3Dc%2Bd%2520e":         true, // escaped
			"luci_password=a%26b%3Dc%2Bd%2520e&luci_username=root":         true,
			"luci_username=admin&luci_password=" + password:                false,
			"luci_username=root&x=&luci_password=" + password:              false,
			"luci_username=root&luci_password=" + password + "x":           false,
			"luci_username=root&luci_password=":                            false,
			"luci_password=" + password:                                    false,
			"":                                                             false,
			"luci_username=root&luci_username=x&luci_password=a&b=c+d%20e": false,
		} {
			require.Equal(t, want, right(form, password), form)
		}
	})
	t.Run("10 MiB", func(t *testing.T) {
		c := newCNF(t, "")
		address, pool, _ := c.listening(t)
		u := &upstream{base: "https://" + address + "/cgi-bin/luci/", password: password, pool: pool}
		code, b := u.call(t, "POST", "sdewan/mwan3/v1/rules", `{"name":"`+strings.Repeat("x", 10<<20)+`"}`)
		require.Equal(t, 413, code)
		require.Equal(t, `{"message":"the body has more than 1048576 bytes"}`, strings.TrimSpace(string(b)))
		code, _ = u.call(t, "PUT", "sdewan/v1/service/mwan3", strings.Repeat(" ", 10<<20))
		require.Equal(t, 413, code)
	})
	t.Run("1,000 wrong passwords at once do not keep the right one out", func(t *testing.T) {
		c := newCNF(t, "")
		c.token(t) // the address has had the right one before
		var wait sync.WaitGroup
		for i := range 1000 {
			wait.Go(func() {
				from := fmt.Sprintf("192.0.2.%d:%d", 10+i%200, 1000+i)
				if code, _ := c.guess(from, "guess"); code != 403 {
					t.Errorf("%d", code)
				}
			})
		}
		begin := time.Now()
		token := c.token(t)
		require.Less(t, time.Since(begin), guessDelay, "the right password waits")
		code, _ := c.do(token, "GET", rest.Rules.Path(), "")
		require.Equal(t, 200, code)
		wait.Wait()
		require.Equal(t, 1, strings.Count(c.log.String(), "a wrong password"), "every guess is a line of the log")
	})
	t.Run("guesses of one address are bounded, whatever number of connections it has", func(t *testing.T) {
		c := newCNF(t, "")
		var compared atomic.Int64
		var wait sync.WaitGroup
		for i := range 200 {
			wait.Go(func() {
				if _, body := c.guess(fmt.Sprintf("192.0.2.7:%d", 1000+i), "guess"); strings.Contains(body, "wrong user") {
					compared.Add(1)
				}
			})
		}
		wait.Wait()
		c.clock.Add(int64(-time.Hour)) // no time has passed
		require.LessOrEqual(t, compared.Load(), int64(guessesOfOne+1))
		code, body := c.guess("192.0.2.7:99", password)
		require.Equal(t, 403, code, "not even the right one is compared")
		require.Contains(t, body, "too many wrong passwords")
		c.clock.Add(int64(2 * time.Hour))
		code, _ = c.guess("192.0.2.7:99", password)
		require.Equal(t, 302, code)
	})
	t.Run("guesses of many addresses are bounded, and so is what is remembered of them", func(t *testing.T) {
		var g guesses
		now := time.Unix(1000, 0)
		right := netip.MustParseAddr("192.0.2.1")
		require.True(t, g.take(right, now))
		g.wasRight(right, now)
		taken := 0
		for i := range 3 * maxAddresses {
			if g.take(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), now) {
				taken++
			}
		}
		require.Equal(t, guessesOfAll, taken)
		require.LessOrEqual(t, len(g.one), maxAddresses+1)
		require.True(t, g.take(right, now), "whose last password was right")
	})
	t.Run("10,000 logins: the number of sessions is bounded, and those in use stay", func(t *testing.T) {
		c := newCNF(t, "")
		used := c.token(t)
		first := c.token(t)
		for range 10000 {
			c.clock.Add(int64(time.Millisecond))
			c.token(t)
			code, _ := c.do(used, "GET", rest.Rules.Path(), "")
			require.Equal(t, 200, code)
		}
		require.Len(t, c.logins.sessions, maxSessions)
		code, _ := c.do(first, "GET", rest.Rules.Path(), "")
		require.Equal(t, 403, code)
	})
	t.Run("a session ends after a day, however much it is used", func(t *testing.T) {
		c := newCNF(t, "")
		token := c.token(t)
		for range 47 {
			c.clock.Add(int64(30 * time.Minute))
			code, _ := c.do(token, "GET", rest.Rules.Path(), "")
			require.Equal(t, 200, code)
		}
		c.clock.Add(int64(30 * time.Minute))
		code, _ := c.do(token, "GET", rest.Rules.Path(), "")
		require.Equal(t, 403, code)
	})
	t.Run("connections that do nothing", func(t *testing.T) {
		c := newCNF(t, "")
		address, pool, _ := c.listening(t)
		var idle []net.Conn
		for range 2 * maxConns {
			conn, err := net.Dial("tcp", address)
			require.NoError(t, err)
			idle = append(idle, conn)
		}
		u := &upstream{base: "https://" + address + "/cgi-bin/luci/", password: password, pool: pool}
		code, _ := u.call(t, "GET", "sdewan/mwan3/v1/rules", "")
		require.Equal(t, 200, code)
		require.NoError(t, idle[0].SetReadDeadline(time.Now().Add(5*time.Second)))
		_, err := idle[0].Read(make([]byte, 1))
		var timeout net.Error
		require.False(t, err == nil || asTimeout(err, &timeout), "the oldest connection is still open: %v", err)
		for _, conn := range idle {
			_ = conn.Close()
		}
	})
	t.Run("one address with more connections than there may be, all of them busy", func(t *testing.T) {
		c := newCNF(t, "")
		address, pool, _ := c.listening(t)
		dialer := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
		for range maxConns + 20 {
			conn, err := tls.DialWithDialer(dialer, "tcp", address,
				&tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12, ServerName: "127.0.0.1"})
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			_, _ = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: 4000\r\n\r\nl", rest.Base)
		}
		u := &upstream{base: "https://" + address + "/cgi-bin/luci/", password: password, pool: pool}
		code, _ := u.call(t, "GET", "sdewan/mwan3/v1/rules", "")
		require.Equal(t, 200, code)
	})
	t.Run("a body that never ends", func(t *testing.T) {
		c := newCNF(t, "")
		address, pool, _ := c.listening(t)
		u := &upstream{base: "https://" + address + "/cgi-bin/luci/", password: password, pool: pool}
		code, err := u.login()
		require.NoError(t, err)
		require.Equal(t, 302, code)
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12})
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		_, err = fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nCookie: sysauth=%s\r\nContent-Length: 100\r\n\r\n{",
			rest.Rules.Path(), u.token)
		require.NoError(t, err)
		// It holds no lock.
		code, _ = u.call(t, "POST", "sdewan/mwan3/v1/rules", `{"name":"r","policy":"default"}`)
		require.Equal(t, 201, code)
		if testing.Short() {
			return
		}
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(2*readTime)))
		b, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Contains(t, string(b), "400 Bad Request")
	})
}

func asTimeout(err error, into *net.Error) bool {
	e, ok := err.(net.Error) // as the connection returns it
	*into = e
	return ok && e.Timeout()
}

// untouchable is a body that must not be read.
type untouchable struct{ t *testing.T }

func (u untouchable) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// There are few zones, as each has rules about each other one.
func TestHostileZones(t *testing.T) {
	c := newCNF(t, "")
	token := c.token(t)
	for i := range maxZones + 1 {
		code, body := c.do(token, "POST", rest.Zones.Path(), fmt.Sprintf(`{"name":"z%d","network":["net1"]}`, i))
		if i < maxZones {
			require.Equal(t, 201, code, body)
			continue
		}
		require.Equal(t, http.StatusInsufficientStorage, code)
		require.Equal(t, `{"message":"the CNF holds 128 objects of this type and no more: delete others"}`, body)
	}
}

// Whoever reads the status slowly does not keep the controller from asking whether the CNF waits
// for it.
func TestHostileSlowReaders(t *testing.T) {
	c := newCNF(t, "")
	token := c.token(t)
	for range maxReports {
		c.reports <- struct{}{}
	}
	code, body := c.do(token, "GET", rest.StatusPath("effect"), "")
	require.Equal(t, 200, code, body)
}

// Objects take at most as much as the controller reads, whatever their number. What makes room
// again is accepted, also after a restart.
func TestHostileLargeObjects(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state")
	c := newCNF(t, file)
	token := c.token(t)
	remote := func(i, size int) string {
		part := strings.Repeat("x", size/3)
		return fmt.Sprintf(
			`{"name":"r%d","gateway":"192.0.2.9","authentication_method":"psk","pre_shared_key":"k","local_public_cert":%q,"local_private_cert":%[2]q,"shared_ca":%[2]q,"connections":[{"name":"c","conn_type":"tunnel","mode":"start"}]}`,
			i, part)
	}
	code, body := c.do(token, "POST", rest.Zones.Path(),
		`{"name":"z","network":["net1"],"subnet":["10.0.0.0/8"`+strings.Repeat(`,"10.0.0.0/8"`, rest.MaxValues)+`]}`)
	require.Equal(t, 400, code, body)
	require.Contains(t, body, "values are too many: use at most 10000")
	code, body = c.do(token, "POST", rest.Remotes.Path(), remote(0, 10))
	require.Equal(t, 201, code, body)
	n := 1
	for ; ; n++ {
		code, body := c.do(token, "POST", rest.Remotes.Path(), remote(n, 384<<10))
		if code != 201 {
			require.Equal(t, http.StatusInsufficientStorage, code, body)
			require.Equal(t, `{"message":"the CNF holds objects of 12 MiB and no more: delete others"}`, body)
			break
		}
	}
	require.Greater(t, n, 20)
	code, _ = c.do(token, "PUT", rest.Remotes.ItemPath("r0"), remote(0, 384<<10))
	require.Equal(t, http.StatusInsufficientStorage, code)
	code, body = c.do(token, "PUT", rest.Remotes.ItemPath("r1"), remote(1, 10))
	require.Equal(t, 200, code, body)
	_, list := c.do(token, "GET", rest.Remotes.Path(), "")
	require.Less(t, len(list), 13<<20)

	c = newCNF(t, file)
	token = c.token(t)
	for _, step := range []struct {
		method, path, body string
		code               int
	}{
		{"POST", rest.Remotes.Path(), remote(n, 384<<10), 201},
		{"POST", rest.Remotes.Path(), remote(n+1, 384<<10), 507},
		{"DELETE", rest.Remotes.ItemPath("r2"), "", 200},
		{"POST", rest.Remotes.Path(), remote(n+1, 384<<10), 201},
	} {
		code, body := c.do(token, step.method, step.path, step.body)
		require.Equal(t, step.code, code, "%s %s: %.200s", step.method, step.path, body)
	}
}

// A thousand logins with the right password take little work and memory.
func BenchmarkLogin(b *testing.B) {
	c := newCNF(b, "")
	b.ReportAllocs()
	for b.Loop() {
		c.token(b)
	}
}

// Any URL and any body get an answer in JSON with a sensible code, and the state stays one that can
// be saved and read.
func FuzzRequest(f *testing.F) {
	f.Add("POST", "sdewan/mwan3/v1/policies", `{"name":"p","members":[{"interface":"net1","metric":"1","weight":"1"}]}`)
	f.Add("PUT", "sdewan/ipsec/v1/remotes/%20a", `{"connections":[{"name":"%","crypto_proposal":["\u0000"]}]}`)
	f.Add("PUT", "sdewan/v1/service/ipsec", `{"action":"stop"}`)
	f.Add("DELETE", "sdewan/firewall/v1/zones/%zz", ``)
	f.Add("GET", "../../sdewan//v1/status/;x?y#z", ``)
	c := newCNF(f, "")
	token := c.token(f)
	f.Fuzz(func(t *testing.T, method, path, body string) {
		r := httptest.NewRequest(http.MethodGet, "https://192.0.2.1/", strings.NewReader(body))
		r.Method = method
		r.URL.Path = "/cgi-bin/luci/" + path
		r.URL.RawPath = "/cgi-bin/luci/" + path
		r.Header.Set("Cookie", "sysauth="+token)
		w := httptest.NewRecorder()
		c.Handler().ServeHTTP(w, r)
		require.Contains(t, []int{200, 201, 400, 403, 404, 405, 409, 416, 428, 500, 507}, w.Code)
		require.True(t, json.Valid(w.Body.Bytes()))
		if w.Code == 201 || strings.Contains(path, "logout") {
			token = c.token(t)
			config := c.Store.Config()
			for _, l := range rest.Collections {
				for _, o := range config.List(l) {
					require.NoError(t, l.Check(o))
				}
			}
		}
	})
}
