package client

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"subctl/sdewan/rest"
)

// List returns the objects of a collection in the CNF's order.
func (c *Client) List(ctx context.Context, l *rest.Collection) ([]Item, error) {
	body, code, err := c.call(ctx, c.o.Timeout,
		request{method: http.MethodGet, path: l.Path(), most: maxBody, large: c.o.Large, unquoted: l == rest.Remotes})
	if err != nil {
		return nil, err
	}
	return decodeList(l, code, body)
}

// Create appends an object to a collection, and returns it as the CNF has stored it.
func (c *Client) Create(ctx context.Context, l *rest.Collection, o rest.Object) (Item, error) {
	return c.write(ctx, http.MethodPost, l.Path(), o)
}

// Update replaces the object with the name of o, and returns it as the CNF has stored it. If there
// is none any more, it is created.
func (c *Client) Update(ctx context.Context, l *rest.Collection, o rest.Object) (Item, error) {
	item, err := c.write(ctx, http.MethodPut, l.ItemPath(o.GetName()), o)
	if CodeOf(err) == http.StatusNotFound {
		return c.Create(ctx, l, o)
	}
	return item, err
}

// Move replaces the object with the name of o and puts it behind all others, in one step. It is
// false if the CNF has not put it there: only subctl's own CNF knows how.
func (c *Client) Move(ctx context.Context, l *rest.Collection, o rest.Object) (bool, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return false, err
	}
	var place string
	_, _, err = c.call(
		ctx,
		c.o.Timeout,
		request{
			method:  http.MethodPut,
			path:    l.ItemPath(o.GetName()),
			body:    b,
			objects: []rest.Object{o},
			large:   c.o.Large,
			place:   &place,
		},
	)
	if CodeOf(err) == http.StatusNotFound { // it is gone
		_, err = c.Create(ctx, l, o)
		return err == nil, err
	}
	return err == nil && place == rest.PlaceLast, err
}

// Delete removes all objects with this name from a collection. It is no error if there is none. The
// names "", "." and ".." are refused: whatever normalizes paths on the way would make them the
// collection, or what contains it.
func (c *Client) Delete(ctx context.Context, l *rest.Collection, name string) error {
	if name == "" || name == "." || name == ".." {
		return &Error{
			Class: Rejected,
			Message: fmt.Sprintf(
				"it has an object with the name %q in %s, which no path can have: remove the object by its own tools",
				name, l),
		}
	}
	_, _, err := c.call(ctx, c.o.Timeout,
		request{method: http.MethodDelete, path: l.ItemPath(name), large: c.o.Large, unquoted: l == rest.Remotes})
	if CodeOf(err) == http.StatusNotFound {
		return nil
	}
	return err
}

// Restart restarts a service: what was written before is in effect afterwards. An error has no
// secrets of objects that the CNF may hold.
func (c *Client) Restart(ctx context.Context, service string, objects []rest.Object) error {
	_, _, err := c.call(
		ctx,
		c.o.RestartTimeout,
		request{
			method:  http.MethodPut,
			path:    rest.ServicePath(service),
			body:    []byte(`{"action":"restart"}`),
			most:    smallBody,
			objects: objects,
		},
	)
	return err
}

// Module is the report of a module of the CNF, or the reason why it has none.
type Module struct {
	Name   string          `json:"name"`
	Status json.RawMessage `json:"status,omitempty"`
	Error  json.RawMessage `json:"error,omitempty"`
}

// Status returns what all modules of the CNF report.
func (c *Client) Status(ctx context.Context) ([]Module, error) {
	body, code, err := c.call(ctx, c.o.Timeout,
		request{method: http.MethodGet, path: rest.StatusPath(""), most: maxStatus, unquoted: true})
	if err != nil {
		return nil, err
	}
	var out []Module
	err = decodeElements(json.NewDecoder(bytes.NewReader(body)), maxModules, func(raw json.RawMessage) error {
		var m Module
		defer func() { out = append(out, m) }()
		return json.Unmarshal(raw, &m)
	})
	if err != nil {
		return nil, nonsense(code, "the status of the CNF: %v", err)
	}
	return out, nil
}

// Effect reports which objects of a CNF have an effect. Only subctl's own CNF has this report.
type Effect struct {
	Reports     bool // whether the CNF reports the following
	Awaiting    bool // it forwards nothing until a service is restarted
	Applied     bool // its kernel holds what follows from its objects
	Ineffective []Ineffective
	Unlisted    int // further objects without effect, some of which may be minor; 0 if all that are not are listed
}

// Ineffective is about an object that has no effect, or of which a part has none.
type Ineffective struct {
	Collection string `json:"collection"` // as rest.Collection.String returns it
	Name       string `json:"name"`
	Reason     string `json:"reason"`
	Minor      bool   `json:"minor"` // only a setting that the CNF does not have is without effect
}

// Effect returns the CNF's report about its objects. The CNF answers when its kernel holds the last
// change, or after a time limit of its own.
func (c *Client) Effect(ctx context.Context) (Effect, error) {
	body, _, err := c.call(ctx, c.o.Timeout,
		request{method: http.MethodGet, path: rest.StatusPath("effect"), most: smallBody, unquoted: true})
	if err != nil {
		if ClassOf(err) == Rejected {
			err = nil // it does not know the module
		}
		return Effect{}, err
	}
	var effect struct {
		Status struct {
			Awaiting    bool          `json:"awaiting"`
			Applied     *bool         `json:"applied"`
			Ineffective []Ineffective `json:"no_effect"` // those that are minor come last
			Count       int           `json:"no_effect_count"`
		} `json:"status"`
	}
	if json.Unmarshal(body, &effect) != nil {
		return Effect{}, nil // it is of another CNF
	}
	e := effect.Status
	for i, o := range e.Ineffective {
		e.Ineffective[i].Reason = clean(o.Reason, nil)
	}
	unlisted := 0
	if n := len(e.Ineffective); e.Applied != nil && (n == 0 || !e.Ineffective[n-1].Minor) {
		unlisted = max(0, e.Count-n)
	}
	return Effect{e.Applied != nil, e.Awaiting, e.Applied != nil && *e.Applied, e.Ineffective, unlisted}, nil
}

func (c *Client) write(ctx context.Context, method, path string, o rest.Object) (Item, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return Item{}, err
	}
	body, code, err := c.call(ctx, c.o.Timeout,
		request{method: method, path: path, body: b, objects: []rest.Object{o}, large: c.o.Large})
	if err != nil {
		return Item{}, err
	}
	return decodeItem(code, body)
}

// request is one call, which is repeated after a new login.
type request struct {
	method, path string
	body         []byte        // JSON, or nil
	objects      []rest.Object // whose secrets no error may have
	// errors do not have the body of the answer, which may have secrets of objects that are not
	// known
	unquoted bool
	most     int                         // bytes of the answer; 0 for the limit of an object
	place    *string                     // is sent and gets rest.PlaceHeader, unless it is nil
	large    func(context.Context) error // is called before more than smallBody is read, unless it is nil
}

// call sends a request, with a login before it if it needs one.
func (c *Client) call(ctx context.Context, timeout time.Duration, r request) ([]byte, int, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	token, err := c.login(ctx, "")
	if err != nil {
		return nil, 0, err
	}
	body, code, err := c.send(ctx, r, token)
	if CodeOf(err) == http.StatusForbidden { // the session has ended
		if token, err = c.login(ctx, token); err != nil {
			return nil, 0, err
		}
		if body, code, err = c.send(ctx, r, token); CodeOf(err) == http.StatusForbidden {
			err = &Error{Class: Unauthorized, Code: http.StatusForbidden}
		}
	}
	return body, code, err
}

// send sends a request once.
func (c *Client) send(ctx context.Context, r request, token string) ([]byte, int, error) {
	req, err := c.request(ctx, r.method, r.path, bytes.NewReader(r.body))
	if err != nil {
		return nil, 0, err
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.place != nil {
		req.Header.Set(rest.PlaceHeader, rest.PlaceLast)
	}
	req.AddCookie(&http.Cookie{Name: cookieName, Value: token})
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, 0, failed(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusMultipleChoices {
		b, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefuse)) // for the message: as much as came
		secrets, all := secretsOf(r.objects)
		if !all || r.unquoted {
			b = nil
		}
		return nil, 0, refusal(resp.StatusCode, b, secrets)
	}
	if r.place != nil {
		*r.place = resp.Header.Get(rest.PlaceHeader)
	}
	b, err := r.read(ctx, resp)
	return b, resp.StatusCode, err
}

// read reads the body of an answer.
func (r request) read(ctx context.Context, resp *http.Response) ([]byte, error) {
	most := cmp.Or(r.most, maxObject)
	var b bytes.Buffer
	for _, until := range []int{min(smallBody, most), most} {
		if _, err := b.ReadFrom(io.LimitReader(resp.Body, int64(until+1-b.Len()))); err != nil {
			return nil, failed(err)
		}
		if b.Len() <= until {
			return b.Bytes(), nil
		}
		if until < most && r.large != nil {
			if err := r.large(ctx); err != nil {
				return nil, err
			}
		}
	}
	return nil, nonsense(resp.StatusCode, "a body of more than %d KiB", most>>10)
}

func (c *Client) request(ctx context.Context, method, path string, body io.Reader) (*http.Request, error) {
	return http.NewRequestWithContext(ctx, method, "https://"+c.o.Name+path, body)
}

// cookieName is the cookie with the session. Newer LuCI than that of the CNFs has a name for each
// scheme, too.
const cookieName = "sysauth"

// login returns the token of the session. It opens a session if there is none, or the one that
// there is has the token ended.
func (c *Client) login(ctx context.Context, ended string) (string, error) {
	select {
	case c.logins <- struct{}{}:
		defer func() { <-c.logins }()
	case <-ctx.Done():
		return "", failed(ctx.Err())
	}
	if c.token != "" && c.token != ended {
		return c.token, nil
	}
	c.token = ""
	form := url.Values{"luci_username": {"root"}, "luci_password": {string(c.o.Password)}}
	req, err := c.request(ctx, http.MethodPost, rest.Base, strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := c.http.Do(req)
	if err != nil {
		return "", failed(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRefuse)) // so that the connection can be used again
	switch resp.StatusCode {
	case http.StatusFound, http.StatusOK:
	case http.StatusForbidden, http.StatusUnauthorized:
		return "", &Error{Class: Unauthorized, Code: resp.StatusCode}
	default:
		return "", refusal(resp.StatusCode, b, []string{string(c.o.Password), url.QueryEscape(string(c.o.Password))})
	}
	for _, k := range resp.Cookies() {
		if (k.Name == cookieName || strings.HasPrefix(k.Name, cookieName+"_http")) && k.Value != "" {
			c.token = k.Value
			return c.token, nil
		}
	}
	if err != nil {
		return "", failed(err)
	}
	return "", nonsense(resp.StatusCode, "the login returned no cookie %s", cookieName)
}
