// Package proxy decides through which proxy a client reaches an API server, and names that proxy
// in errors. The rules are the rules of the environment variables HTTPS_PROXY and NO_PROXY, which
// kubectl and curl follow. The package opens no connection.
package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"

	"golang.org/x/net/http/httpproxy"
)

// None, in place of a URL, means that no proxy is used, whatever the environment specifies.
const None = "none"

// Settings specify a proxy and what is reached without it. The zero Settings specify none.
type Settings struct {
	// URL is the proxy's URL, such as http://proxy.example:3128. It may contain a user and a
	// password, which String omits.
	URL string
	// Except lists what is reached directly, in the notation of NO_PROXY: names, addresses and
	// networks, separated by commas.
	Except string
	// Always means that the proxy is used for every address. Otherwise, it is not used for loopback
	// addresses, as with HTTPS_PROXY.
	Always bool
	// Source tells, in messages, where the proxy is specified, such as HTTPS_PROXY.
	Source string
}

// FromEnvironment returns the settings in the environment variables HTTPS_PROXY and NO_PROXY, also
// in lower case.
func FromEnvironment() Settings {
	config := httpproxy.FromEnvironment()
	return Settings{URL: config.HTTPSProxy, Except: config.NoProxy, Source: "HTTPS_PROXY"}
}

// TakeFromEnvironment is FromEnvironment, and removes the variables, so that from now on no
// connection of this process uses a proxy unless it is told to. It must be called before the first
// request.
func TakeFromEnvironment() Settings {
	s := FromEnvironment()
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"} {
		_ = os.Unsetenv(name)
		_ = os.Unsetenv(strings.ToLower(name))
	}
	return s
}

// schemes are the schemes of the proxies' URLs.
var schemes = []string{"http", "https", "socks5", "socks5h"}

// Parse returns the URL of a proxy. As in HTTPS_PROXY, http:// may be omitted.
func Parse(text string) (*url.URL, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" || !slices.Contains(schemes, u.Scheme) || u.RawQuery != "" ||
		strings.Trim(u.Path, "/") != "" {
		// The text may contain a password, and so may the error of url.Parse.
		return nil, errors.New("is not the URL of a proxy: use http://HOST:PORT, https://HOST:PORT or " +
			"socks5://HOST:PORT")
	}
	u.Path = ""
	return u, nil
}

// Chooser returns the proxy for a request, or nil if there is none, as http.Transport.Proxy does.
type Chooser func(*http.Request) (*url.URL, error)

// Chooser returns a function that follows the settings.
func (s Settings) Chooser() Chooser {
	if s.Always {
		u, err := Parse(s.URL)
		if err != nil {
			err = fmt.Errorf("the proxy of %s %w", s.Source, err)
		}
		return func(*http.Request) (*url.URL, error) { return u, err }
	}
	config := httpproxy.Config{HTTPSProxy: s.URL, NoProxy: s.Except}
	if s.URL == None {
		config.HTTPSProxy = ""
	}
	choose := config.ProxyFunc()
	return func(r *http.Request) (*url.URL, error) { return choose(r.URL) }
}

// For returns the proxy through which an address, https://host:port, is reached, or nil if it is
// reached directly.
func (s Settings) For(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, err
	}
	return s.Chooser()(&http.Request{URL: u})
}

// IsLocal reports whether only the machine itself can use the proxy.
func IsLocal(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && (ip.IsLoopback() || ip.IsUnspecified())
}

// Name returns the URL of a proxy without user and password.
func Name(u *url.URL) string { return u.Scheme + "://" + u.Host }

// Error is the error of a request that was made through a proxy.
type Error struct {
	Proxy  string // without user and password
	Source string // see Settings.Source
	Err    error
}

// Error implements error.
func (e *Error) Error() string { return e.Through() + ": " + e.Err.Error() }

// Unwrap returns the error of the request.
func (e *Error) Unwrap() error { return e.Err }

// Through names the proxy: "through the proxy http://proxy.example:3128 (from HTTPS_PROXY)".
func (e *Error) Through() string {
	if e.Source == "" {
		return "through the proxy " + e.Proxy
	}
	return fmt.Sprintf("through the proxy %s (from %s)", e.Proxy, e.Source)
}

// Through returns the name of the proxy of a failed request, with a space before it, or "" if the
// request was made without a proxy.
func Through(err error) string {
	var through *Error
	if errors.As(err, &through) {
		return " " + through.Through()
	}
	return ""
}

// WithoutName returns the error without the name of the proxy.
func WithoutName(err error) error {
	var through *Error
	if errors.As(err, &through) {
		return through.Err
	}
	return err
}

// Naming returns a wrapper of the client's transport that names the proxy in errors of requests.
// choose must be what the transport itself follows.
func Naming(choose Chooser, source string) func(http.RoundTripper) http.RoundTripper {
	return func(next http.RoundTripper) http.RoundTripper { return naming{next, choose, source} }
}

type naming struct {
	next   http.RoundTripper
	choose Chooser
	source string
}

// RoundTrip implements http.RoundTripper.
func (n naming) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := n.next.RoundTrip(r)
	if err == nil {
		return response, nil
	}
	if u, _ := n.choose(r); u != nil {
		err = &Error{Proxy: Name(u), Source: n.source, Err: err}
	}
	return response, err
}

// WrappedRoundTripper returns what makes the requests.
func (n naming) WrappedRoundTripper() http.RoundTripper { return n.next }
