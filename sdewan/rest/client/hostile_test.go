package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"subctl/sdewan/rest"
	"subctl/sdewan/rest/client"
	"subctl/sdewan/rest/openwrttest"
)

// answering returns a client of a CNF whose every answer is body.
func answering(t *testing.T, body string, o client.Options) *client.Client {
	t.Helper()
	box := openwrttest.New(password)
	authority := openwrttest.NewAuthority(t)
	o.Address, _ = openwrttest.Serve(t, "127.0.0.1:0", authority.Certificate(t, podName), box)
	o.CA = authority.PEM
	c := connect(t, o)
	_, err := c.List(t.Context(), rest.Policies) // logs in
	require.NoError(t, err)
	box.Fail(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, body) })
	return c
}

// Whoever runs one CNF does not fill the memory of the controller of all others: not by what an
// answer is decoded to.
func TestHostileMemory(t *testing.T) {
	fill := func(begin, one, end string) string {
		return begin + strings.Repeat(one+",", (15<<20)/(len(one)+1)) + one + end
	}
	names := func() string {
		var b strings.Builder
		for i := 0; b.Len() < 15<<20; i++ {
			fmt.Fprintf(&b, `,{"name":"%x"}`, i)
		}
		return `{"rules":[` + b.String()[1:] + "]}"
	}
	list := func(c *client.Client) error { _, err := c.List(t.Context(), rest.Rules); return err }
	status := func(c *client.Client) error { _, err := c.Status(t.Context()); return err }
	create := func(c *client.Client) error {
		_, err := c.Create(t.Context(), rest.Rules, &rest.Rule{Name: "x"})
		return err
	}
	for name, test := range map[string]struct {
		body string
		call func(*client.Client) error
	}{
		"a million objects": {names(), list},
		"empty objects":     {fill(`{"rules":[`, "{}", "]}"), list},
		"other lists": {
			fill(`{"x":[`, `{"":{}}`, `],"rules":[]}`),
			func(c *client.Client) error { require.NoError(t, list(c)); return errors.New("nonsense") },
		},
		"an object of many values": {fill(`{"rules":[{"name":"x","y":[`, `{"":{}}`, "]}]}"), list},
		"a status":                 {fill("[", "{}", "]"), status},
		"a created object":         {fill(`{"name":"x","y":[`, `{"":{}}`, "]}"), create},
	} {
		t.Run(name, func(t *testing.T) {
			c := answering(t, test.body, client.Options{})
			test.body = ""
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			require.ErrorContains(t, test.call(c), "nonsense")
			runtime.ReadMemStats(&after)
			require.Less(t, (after.TotalAlloc-before.TotalAlloc)>>20, uint64(160), "MiB; the body has 15")
		})
	}
}

// What a CNF returns is kept as it came, not as what it is decoded to.
func TestHostileItems(t *testing.T) {
	one := `{"name":"%d","y":[` + strings.TrimSuffix(strings.Repeat(`{"":{}},`, 3000), ",") + `]}`
	var all []string
	for i := range 600 {
		all = append(all, fmt.Sprintf(one, i))
	}
	c := answering(t, `{"rules":[`+strings.Join(all, ",")+"]}", client.Options{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	items, err := c.List(t.Context(), rest.Rules)
	require.NoError(t, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, (int64(after.HeapAlloc)-int64(before.HeapAlloc))>>20, int64(40), "MiB of heap for 14 MiB of JSON")
	require.Len(t, items, 600)
}

// Names that fill logs, or write to terminals, are refused.
func TestHostileNames(t *testing.T) {
	for name, text := range map[string]string{
		"long":         strings.Repeat("x", 1<<20),
		"of two lines": `a\nb`,
		"an escape":    `a\u001b[2J`,
		"a separator":  `\u2028`,
	} {
		c := answering(t, `{"rules":[{"name":"`+text+`"}]}`, client.Options{})
		_, err := c.List(t.Context(), rest.Rules)
		require.ErrorContains(t, err, "its name has control characters, or is too long", name)
		require.Less(t, len(err.Error()), 400)
	}
}

// The certificate of a CNF, which errors quote, is one line of a bounded length.
func TestHostileCertificates(t *testing.T) {
	box := openwrttest.New(password)
	authority := openwrttest.NewAuthority(t)
	names := []string{"a\x1b[2J.example"}
	for i := range 90 {
		names = append(names, fmt.Sprintf("%s%d.example", strings.Repeat("x", 200), i))
	}
	address, _ := openwrttest.Serve(t, "127.0.0.1:0", authority.Certificate(t, names...), box)
	_, err := connect(t, client.Options{Address: address, CA: authority.PEM}).List(t.Context(), rest.Rules)
	require.Equal(t, client.Untrusted, client.ClassOf(err))
	require.NotContains(t, err.Error(), "\x1b")
	require.Less(t, len(err.Error()), 500)
}

// A long answer waits until the caller has room for it, and a short one does not.
func TestHostileLargeAnswers(t *testing.T) {
	asked := 0
	o := client.Options{Large: func(context.Context) error { asked++; return errors.New("later") }}
	c := answering(t, `{"rules":[]}`+strings.Repeat(" ", 127<<10), o)
	_, err := c.List(t.Context(), rest.Rules)
	require.NoError(t, err)
	require.Zero(t, asked)
	c = answering(t, `{"rules":[]}`+strings.Repeat(" ", 129<<10), o)
	_, err = c.List(t.Context(), rest.Rules)
	require.EqualError(t, err, "later")
	require.Equal(t, 1, asked)
	require.Equal(t, client.Unavailable, client.ClassOf(err))
}

// A CNF that quotes only a part of a key does not bring it into an error, which is in Events.
func TestHostileQuotes(t *testing.T) {
	box, c := serve(t)
	_, err := c.List(t.Context(), rest.Policies)
	require.NoError(t, err)
	key := strings.Repeat("LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0t",
		3) + "MIIEvAIBADANBgkqhkiG9w0BAQEFAASCBKYwggSiAgEAAoIBAQ"
	for _, quoted := range []string{key[:100], key[50:], key[110:125], key[:30] + "…"} {
		box.Fail(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(400)
			fmt.Fprintf(w, `{"message":"Field[local_private_cert] checked failed: %s is wrong"}`, quoted)
		})
		_, err = c.Create(t.Context(), rest.Remotes, &rest.Remote{Name: "r", LocalKey: key})
		require.EqualError(
			t,
			err,
			"the CNF answers 400: Field[local_private_cert] checked failed: (hidden)"+
				map[bool]string{true: "…"}[strings.HasSuffix(quoted, "…")]+" is wrong",
		)
	}
}

// What a CNF makes of its objects is what it reports: a CNF that does not know the question reports
// nothing, and neither does one that answers with nonsense.
func TestEffect(t *testing.T) {
	for name, test := range map[string]struct {
		code int
		body string
		want client.Effect
		err  string
	}{
		"waits":    {200, `{"name":"effect","status":{"awaiting":true}}`, client.Effect{Awaiting: true}, ""},
		"does not": {200, `{"name":"effect","status":{"awaiting":false}}`, client.Effect{}, ""},
		"older": {
			200,
			`{"name":"effect","status":{"applied":true}}`,
			client.Effect{Reports: true, Applied: true},
			"",
		},
		"fails": {
			200,
			`{"name":"effect","status":{"applied":false,"no_effect":[{"collection":"nat/nats","name":"n","reason":"no\nport","minor":true}]}}`,
			client.Effect{
				Reports:     true,
				Ineffective: []client.Ineffective{{Collection: "nat/nats", Name: "n", Reason: "no port", Minor: true}},
			},
			"",
		},
		"too many": {
			200,
			`{"name":"effect","status":{"applied":true,"no_effect_count":3,"no_effect":[{"collection":"nat/nats","name":"n"}]}}`,
			client.Effect{
				Reports:     true,
				Applied:     true,
				Unlisted:    2,
				Ineffective: []client.Ineffective{{Collection: "nat/nats", Name: "n"}},
			},
			"",
		},
		"too many settings": {
			200,
			`{"name":"effect","status":{"applied":true,"no_effect_count":3,"no_effect":[{"collection":"nat/nats","name":"n","minor":true}]}}`,
			client.Effect{
				Reports:     true,
				Applied:     true,
				Ineffective: []client.Ineffective{{Collection: "nat/nats", Name: "n", Minor: true}},
			},
			"",
		},
		"wrong count": {
			200,
			`{"name":"effect","status":{"applied":true,"no_effect_count":-1}}`,
			client.Effect{Reports: true, Applied: true},
			"",
		},
		"unknown":  {400, `{"message":"Bad request URI"}`, client.Effect{}, ""},
		"page":     {404, `<html>`, client.Effect{}, ""},
		"nonsense": {200, `[1`, client.Effect{}, ""},
		"long": {
			200,
			`{"name":"` + strings.Repeat("x", 200<<10) + `"}`,
			client.Effect{},
			"the CNF answers with nonsense: a body of more than 128 KiB",
		},
		"is broken": {500, `{"message":"no"}`, client.Effect{}, "the CNF answers 500"},
	} {
		box, c := serve(t)
		_, err := c.List(t.Context(), rest.Policies)
		require.NoError(t, err)
		box.Fail(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(test.code)
			fmt.Fprint(w, test.body)
		})
		got, err := c.Effect(t.Context())
		require.Equal(t, test.want, got, name)
		if test.err == "" {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, test.err, name)
		}
	}
}

// A CNF that holds as many objects as it may refuses an object, and works otherwise.
func TestFull(t *testing.T) {
	box, c := serve(t)
	_, err := c.List(t.Context(), rest.Policies)
	require.NoError(t, err)
	box.Fail(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInsufficientStorage) })
	_, err = c.Create(t.Context(), rest.Zones, &rest.Zone{Name: "z"})
	require.Equal(t, client.Rejected, client.ClassOf(err))
}

// A CNF that refuses the restart of a service has its text searched for a limited number of keys:
// if there are more, nobody sees the text.
func TestHostileRestarts(t *testing.T) {
	box, c := serve(t)
	_, err := c.List(t.Context(), rest.Policies)
	require.NoError(t, err)
	box.Fail(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(500)
		fmt.Fprintf(w, `{"message":"no such key: %s"}`, strings.Repeat("k", 100))
	})
	one := &rest.Remote{Name: "r", LocalKey: strings.Repeat("k", 1000)}
	require.EqualError(t, c.Restart(t.Context(), "ipsec", []rest.Object{one}),
		"the CNF answers 500: no such key: (hidden)")
	var many []rest.Object
	for range 1000 {
		many = append(many, one)
	}
	require.EqualError(t, c.Restart(t.Context(), "ipsec", many), "the CNF answers 500")
}

// An object whose name means a directory in paths is not deleted: a proxy would make the request
// one about the collection.
func TestHostileNamesOfDirectories(t *testing.T) {
	box, c := serve(t)
	box.Fail(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s %s", r.Method, r.URL) })
	for _, name := range []string{"", ".", ".."} {
		err := c.Delete(t.Context(), rest.Policies, name)
		require.Equal(t, client.Rejected, client.ClassOf(err), "other objects are written all the same")
		require.ErrorContains(t, err, "which no path can have")
	}
}
