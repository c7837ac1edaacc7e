package client_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"subctl/internal/secret"
	"subctl/sdewan/rest"
	"subctl/sdewan/rest/client"
	"subctl/sdewan/rest/openwrttest"
)

const (
	podName  = "127-0-0-1.default.pod.cluster.local"
	password = `root 1&x=%"é`
)

// serve returns a box, and a client of it.
func serve(t *testing.T) (*openwrttest.Box, *client.Client) {
	t.Helper()
	box := openwrttest.New(password)
	authority := openwrttest.NewAuthority(t)
	address, _ := openwrttest.Serve(t, "127.0.0.1:0", authority.Certificate(t, "*.default.pod.cluster.local"), box)
	return box, connect(t, client.Options{Address: address, CA: authority.PEM})
}

func connect(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	if o.Password == nil {
		o.Password = secret.Bytes(password)
	}
	o.Name = podName
	c, err := client.New(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

func policy(name string) *rest.Policy {
	return &rest.Policy{
		Name: name,
		Members: []rest.Member{
			{Interface: "net1", Metric: "1", Weight: "2"},
			{Interface: "net0", Metric: "1", Weight: "3"},
		},
	}
}

func TestObjects(t *testing.T) {
	box, c := serve(t)
	ctx := t.Context()
	for _, l := range rest.Collections {
		items, err := c.List(ctx, l)
		require.NoError(t, err, l)
		require.Empty(t, items)
	}
	item, err := c.Create(ctx, rest.Policies, policy("p"))
	require.NoError(t, err)
	require.True(t, matches(item, policy("p")))
	_, err = c.Create(ctx, rest.Policies, policy("p"))
	require.Equal(t, client.Rejected, client.ClassOf(err))
	require.Equal(t, http.StatusConflict, client.CodeOf(err))
	rule := &rest.Rule{Name: "a b/ü?", Policy: "p", DestPort: "80"}
	_, err = c.Create(ctx, rest.Rules, rule)
	require.NoError(t, err)
	rule.DestPort = "81"
	_, err = c.Update(ctx, rest.Rules, rule)
	require.NoError(t, err)
	items, err := c.List(ctx, rest.Rules)
	require.NoError(t, err)
	require.Len(t, items, 1)
	require.Equal(t, rule.Name, items[0].Name)
	require.True(t, matches(items[0], rule))
	require.EqualError(t, c.Delete(ctx, rest.Policies, "p"), "the CNF answers 400: policie p is used")
	require.NoError(t, c.Delete(ctx, rest.Rules, rule.Name))
	require.NoError(t, c.Delete(ctx, rest.Rules, rule.Name), "not there is deleted")
	require.NoError(t, c.Delete(ctx, rest.Policies, "p"))
	require.NoError(t, c.Restart(ctx, "mwan3", nil))
	modules, err := c.Status(ctx)
	require.NoError(t, err)
	require.Len(t, modules, 2)
	require.Equal(t, 1, box.Logins(), "one session for all calls")
}

func matches(i client.Item, o rest.Object) bool {
	matches, unreadable := i.Matches(o)
	return matches && !unreadable
}

// A remote comes back with its connections sorted, and without what OpenWrt does not return.
func TestUnreadable(t *testing.T) {
	_, c := serve(t)
	remote := func() *rest.Remote {
		return &rest.Remote{
			Name:      "r",
			Gateway:   "%any",
			Auth:      "pubkey",
			LocalCert: "AA==",
			LocalKey:  "AA==",
			CA:        "AA==",
			Connections: []rest.Connection{
				{Name: "b", Type: "tunnel", Mode: "start", IfID: "3"}, {Name: "a", Type: "transport", Mode: "start"},
			},
		}
	}
	item, err := c.Create(t.Context(), rest.Remotes, remote())
	require.NoError(t, err)
	same, unreadable := item.Matches(remote())
	require.True(t, same)
	require.True(t, unreadable)
	other := remote()
	other.Connections[0].Mode = "add"
	same, _ = item.Matches(other)
	require.False(t, same)
	again, err := c.Update(t.Context(), rest.Remotes, remote())
	require.NoError(t, err)
	require.True(t, again.Same(item))
}

func TestSessionEnds(t *testing.T) {
	box, c := serve(t)
	_, err := c.List(t.Context(), rest.Rules)
	require.NoError(t, err)
	box.Reset() // with its sessions
	_, err = c.List(t.Context(), rest.Rules)
	require.NoError(t, err)
	require.Equal(t, 2, box.Logins())
	box.SetPassword("other")
	_, err = c.List(t.Context(), rest.Rules)
	require.Equal(t, client.Unauthorized, client.ClassOf(err))
	require.EqualError(t, err, "the CNF does not accept the password of root")
	box.SetPassword(password)
	_, err = c.List(t.Context(), rest.Rules)
	require.NoError(t, err)
}

// A CNF whose every answer is 403 gets one more login for each call, and no more.
func TestForbidden(t *testing.T) {
	box, c := serve(t)
	logins := 0
	box.Fail(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == rest.Base {
			logins++
			w.Header().Set("Set-Cookie", "sysauth=x")
			w.WriteHeader(http.StatusFound)
			return
		}
		w.WriteHeader(http.StatusForbidden)
	})
	for calls := range 3 {
		require.Equal(t, client.Unauthorized, client.ClassOf(c.Delete(t.Context(), rest.Rules, "x")),
			"a DELETE is not taken for done")
		require.Equal(t, calls+2, logins)
	}
}

func TestCertificates(t *testing.T) {
	box := openwrttest.New(password)
	authority := openwrttest.NewAuthority(t)
	for name, certificate := range map[string]struct {
		names []string
		by    *openwrttest.Authority
		want  string
	}{
		"another name":      {[]string{"127-0-0-2.default.pod.cluster.local"}, authority, "not " + podName},
		"another namespace": {[]string{"*.kube-system.pod.cluster.local"}, authority, "not " + podName},
		"another authority": {[]string{podName}, openwrttest.NewAuthority(t), "unknown authority"},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := openwrttest.Serve(t, "127.0.0.1:0", certificate.by.Certificate(t, certificate.names...), box)
			_, err := connect(t, client.Options{Address: address, CA: authority.PEM}).List(t.Context(), rest.Rules)
			require.Equal(t, client.Untrusted, client.ClassOf(err), err)
			require.ErrorContains(t, err, certificate.want)
			require.Zero(t, box.Logins(), "the password was not sent")
		})
	}
}

func TestOptions(t *testing.T) {
	_, err := client.New(client.Options{Address: "10.0.0.1"})
	for _, want := range []string{"CA", "password", "name", "address"} {
		require.ErrorContains(t, err, want)
	}
	require.Equal(t, "10-1-2-3.cnfs.pod.cluster.local",
		client.PodName(netip.MustParseAddr("10.1.2.3"), "cnfs", "cluster.local"))
	require.Equal(t, "fd00--1.cnfs.pod.corp", client.PodName(netip.MustParseAddr("fd00::1"), "cnfs", "corp"))
}

// TestHostileAnswers has the answers of CNFs that are broken, or somebody else's.
func TestHostileAnswers(t *testing.T) {
	answer := func(code int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code); fmt.Fprint(w, body) }
	}
	for name, test := range map[string]struct {
		answer http.HandlerFunc
		class  client.Class
		want   string
	}{
		"500": {
			answer(500, "/usr/lib/lua/x.lua:3: attempt"),
			client.Unavailable,
			"the CNF answers 500: /usr/lib/lua/x.lua:3: attempt",
		},
		"a page": {answer(404, "<html>"), client.Rejected, "the CNF answers 404"},
		"unescaped": {
			answer(400, `{"message":"Field["a"] failed"}`),
			client.Rejected,
			`the CNF answers 400: Field["a"] failed`,
		},
		"control characters": {
			answer(400, "{\"message\":\"a\x1b[31m\\nb\"}"),
			client.Rejected,
			"the CNF answers 400: a [31m\\nb",
		},
		"long": {
			answer(400, strings.Repeat("x", 1<<20)),
			client.Rejected,
			"the CNF answers 400: " + strings.Repeat("x", 300) + "…",
		},
		"garbage": {answer(200, "\x00\xff"), client.Unavailable, "nonsense"},
		"no list": {
			answer(200, `{"message":"hello"}`),
			client.Unavailable,
			"the list of mwan3/rules has no key rules",
		},
		"null":        {answer(200, `null`), client.Unavailable, "has no key rules"},
		"numbers":     {answer(200, `{"rules":[1]}`), client.Unavailable, "nonsense"},
		"no name":     {answer(200, `{"rules":[{}]}`), client.Unavailable, "an object without a name"},
		"a deep list": {answer(200, `{"rules":`+strings.Repeat("[", 1e6)), client.Unavailable, "nonsense"},
		"204":         {answer(204, ""), client.Unavailable, "nonsense"},
		"too long": {
			answer(200, `{"rules":["`+strings.Repeat("x", 17<<20)),
			client.Unavailable,
			"a body of more than 16384 KiB",
		},
		"headers": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, client.Unavailable, "the CNF does not answer"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://example.com/", http.StatusMovedPermanently)
		}, client.Unavailable, "a redirect, which is not followed"},
		"never": {
			func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
			client.Unavailable,
			"it took too long",
		},
		"slowly": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				fmt.Fprint(w, " ")
				w.(http.Flusher).Flush()
				time.Sleep(10 * time.Millisecond)
			}
		}, client.Unavailable, "it took too long"},
		"hangs up": {
			func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
			client.Unavailable,
			"the CNF does not answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			box := openwrttest.New(password)
			authority := openwrttest.NewAuthority(t)
			address, _ := openwrttest.Serve(t, "127.0.0.1:0", authority.Certificate(t, podName), box)
			timeout := time.Minute // of tests that must not take it
			if strings.Contains(test.want, "too long") {
				timeout = 2 * time.Second
			}
			c := connect(t, client.Options{Address: address, CA: authority.PEM, Timeout: timeout})
			_, err := c.List(t.Context(), rest.Policies) // logs in
			require.NoError(t, err)
			box.Fail(test.answer)
			start := time.Now()
			_, err = c.List(t.Context(), rest.Rules)
			require.ErrorContains(t, err, test.want)
			require.Equal(t, test.class, client.ClassOf(err))
			require.Less(t, time.Since(start), time.Minute)
			box.Fail(nil)
			_, err = c.List(t.Context(), rest.Rules)
			require.NoError(t, err, "a CNF that is well again")
		})
	}
}

// A login that a CNF answers without a session is an error, and a panic of upstream's client.
func TestHostileLogins(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"no cookie": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusFound) },
		"empty cookie": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Set-Cookie", "sysauth=")
			w.WriteHeader(302)
		},
		"500": func(w http.ResponseWriter, r *http.Request) { http.Error(w, r.FormValue("luci_password"), 500) },
	} {
		t.Run(name, func(t *testing.T) {
			box, c := serve(t)
			box.Fail(answer)
			_, err := c.List(t.Context(), rest.Rules)
			require.Error(t, err)
			require.Equal(t, client.Unavailable, client.ClassOf(err))
			require.NotContains(t, err.Error(), password)
		})
	}
}

// A CNF that repeats what it was sent does not bring a secret into an error.
func TestSecretsStaySecret(t *testing.T) {
	box, c := serve(t)
	_, err := c.List(t.Context(), rest.Policies)
	require.NoError(t, err)
	remote := &rest.Remote{Name: "r", PreSharedKey: `se"cret`, LocalKey: "cHJpdmF0ZQ=="}
	box.Fail(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(416)
		b := make([]byte, 10000)
		n, _ := r.Body.Read(b)
		_, _ = w.Write(b[:n])
		fmt.Fprint(w, remote.PreSharedKey)
	})
	_, err = c.Create(t.Context(), rest.Remotes, remote)
	for _, err := range []error{err, c.Restart(t.Context(), "ipsec", []rest.Object{remote})} {
		require.ErrorContains(t, err, "416")
		for _, s := range []string{`se"cret`, `se\"cret`, remote.LocalKey} {
			require.NotContains(t, err.Error(), s)
		}
	}
	// Nor do answers about objects that the client does not know.
	box.Fail(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "preshared key "+remote.PreSharedKey, 500) })
	_, err = c.List(t.Context(), rest.Remotes)
	_, status := c.Status(t.Context())
	for _, err := range []error{err, c.Delete(t.Context(), rest.Remotes, "r"), status} {
		require.ErrorContains(t, err, "500")
		require.NotContains(t, err.Error(), remote.PreSharedKey)
	}
	require.ErrorContains(t, c.Delete(t.Context(), rest.Zones, "z"), "preshared key")
	require.NotContains(t, fmt.Sprintf("%+v", client.Options{Password: secret.Bytes("se-cret")}), "se-cret")
}

// One connection serves all calls, and is closed by Close.
func TestConnections(t *testing.T) {
	_, c := serve(t)
	for range 5 {
		_, err := c.List(t.Context(), rest.Rules)
		require.NoError(t, err)
	}
	c.Close()
	_, err := c.List(t.Context(), rest.Rules)
	require.NoError(t, err)
}

// A CNF that accepts connections and is silent is given up after a bounded time, and so is a caller
// that does not wait.
func TestSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	c := connect(
		t,
		client.Options{
			Address: l.Addr().String(),
			CA:      openwrttest.NewAuthority(t).PEM,
			Timeout: 100 * time.Millisecond,
		},
	)
	_, err = c.List(t.Context(), rest.Rules)
	require.EqualError(t, err, "the CNF does not answer: it took too long")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.List(ctx, rest.Rules)
	require.Error(t, err)
	require.Equal(t, client.Unavailable, client.ClassOf(err))
}

// A call whose time is up does not wait for the login of another call.
func TestLoginEndsWithTheCall(t *testing.T) {
	box, c := serve(t)
	release := make(chan struct{})
	asked := make(chan struct{}, 1)
	box.Fail(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		<-release
		w.WriteHeader(http.StatusForbidden)
	})
	first := make(chan error)
	go func() {
		_, err := c.List(t.Context(), rest.Policies)
		first <- err
	}()
	<-asked
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := c.List(ctx, rest.Policies)
	require.EqualError(t, err, "the CNF does not answer: it took too long")
	require.Less(t, time.Since(start), 2*time.Second)
	close(release)
	require.Error(t, <-first)
}
