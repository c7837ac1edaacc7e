package look

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Target is a cluster to look at.
type Target struct {
	Context string // of the kubeconfig
	Cluster string // its name in the kubeconfig
	Err     error  // why it cannot be reached; nil: see Connect
	// Connect makes a client, after the first answer of the API server.
	Connect func(context.Context) (client.Client, error)
	Clock   *Clock

	client client.Client // nil before the first answer
}

// connect creates the client, unless it exists.
func (t *Target) connect(ctx context.Context) error {
	if t.Err != nil || t.client != nil {
		return t.Err
	}
	c, err := t.Connect(ctx)
	if err != nil {
		return err
	}
	t.client = c
	return nil
}

// read reads a target.
func (t *Target) read(ctx context.Context, reads []Read) (Site, error) {
	s := Site{Name: t.Cluster}
	if err := t.connect(ctx); err != nil {
		return s, err
	}
	for _, read := range append([]Read{readSubmariner}, reads...) {
		if err := read(ctx, t.client, &s); err != nil {
			return s, err
		}
	}
	s.Now = t.Clock.Now()
	return s, nil
}

// Clock is the clock of an API server. Reports of agents must not look old because the
// clock of this machine is wrong.
type Clock struct {
	Local func() time.Time
	skew  atomic.Int64 // of the server's clock, in nanoseconds
}

// Now returns the server's time, or the local time before its first answer.
func (c *Clock) Now() time.Time { return c.Local().Add(time.Duration(c.skew.Load())) }

// Wrap returns a transport that reads the time from every answer.
func (c *Clock) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return resp, err
		}
		if date, bad := http.ParseTime(resp.Header.Get("Date")); bad == nil {
			c.skew.Store(int64(date.Sub(c.Local())))
		}
		return resp, nil
	})
}

// roundTripper is a function that is a http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
