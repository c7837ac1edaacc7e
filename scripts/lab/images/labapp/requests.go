package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// underWayLimit bounds the requests that wait for an answer at the same time: each has a socket.
const underWayLimit = 1000

// requested is what became of requests.
type requested struct {
	Started int64 `json:"startedUnixMs"`
	Sent    int   `json:"sent"`
	Skipped int   `json:"skipped"` // not sent, because too many others were waiting for an answer
	Failed  int   `json:"failed"`
	// the first that failed: when they were sent, counted from the beginning
	FailedAt   []int                `json:"failedAtMs"`
	LastFailed int                  `json:"lastFailedMs"` // when the last one that failed was sent
	LongestGap float64              `json:"longestGapMs"` // without an answer, also at the beginning and the end
	Errors     map[string]int       `json:"errors"`
	Answers    map[string]*answered `json:"answers"` // by pod: who it says it is

	mu       sync.Mutex
	started  time.Time
	arrivals []time.Time
	wanted   int // the number of answers after which requests end; 0: any
	enough   context.CancelFunc
	first    func() // called with the first answer; may be nil
}

// answered counts the answers of a pod. Times are when the requests were sent, counted from the
// beginning.
type answered struct {
	Count int `json:"count"`
	First int `json:"firstMs"`
	Last  int `json:"lastMs"`
}

// requests fetches a URL at a steady rate, each time over a connection of its own and by resolving
// the name again, and reports which pods have answered, and what failed: what a failure, or a
// change of a Service, costs its clients. With 0 seconds it goes on until its standard input ends,
// or so many requests were answered.
func requests(ctx context.Context, args []string) error {
	rest, values, err := split(args, "rate", "seconds", "timeout", "answers")
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return errors.New("requests wants one URL")
	}
	timeout, err := timeoutOf(values)
	if err != nil {
		return err
	}
	rate, err := number(values, "rate", 200)
	if err != nil {
		return err
	}
	wanted := 0
	if values["answers"] != "" {
		if wanted, err = number(values, "answers", 1); err != nil {
			return err
		}
	}
	total := rate * maxStream
	var first func()
	if values["seconds"] == "0" {
		ctx = untilStdinEnds(ctx)
		first = func() { fmt.Fprintln(os.Stderr, "requests are answered") }
	} else {
		seconds, err := number(values, "seconds", 10)
		if err != nil {
			return err
		}
		total = rate * seconds
	}
	result := requestAll(ctx, rest[0], total, wanted, time.Second/time.Duration(rate), timeout, first)
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		return err
	}
	if len(result.Answers) == 0 {
		return errors.New("nobody has answered")
	}
	return nil
}

func requestAll(
	ctx context.Context,
	url string,
	total, wanted int,
	every, timeout time.Duration,
	first func(),
) *requested {
	r := &requested{
		started: time.Now(),
		Errors:  map[string]int{},
		Answers: map[string]*answered{},
		wanted:  wanted,
		first:   first,
	}
	r.Started = r.started.UnixMilli()
	ctx, r.enough = context.WithCancel(ctx)
	defer r.enough()
	client := &http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	free := make(chan struct{}, underWayLimit)
	var all sync.WaitGroup
	for i := 0; i < total && ctx.Err() == nil; i++ {
		select {
		case <-ctx.Done():
			continue
		case <-time.After(time.Until(r.started.Add(time.Duration(i) * every))):
		}
		select {
		case free <- struct{}{}:
		default:
			r.Skipped++
			continue
		}
		r.Sent++
		all.Go(func() {
			defer func() { <-free }()
			sent := time.Now()
			who, err := whoAnswers(client, url)
			r.note(sent, who, err)
		})
	}
	ended := time.Now()
	all.Wait()
	r.LongestGap, _ = longestGap(r.started, r.arrivals, ended)
	return r
}

// note adds the outcome of one request.
func (r *requested) note(sent time.Time, who string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := int(sent.Sub(r.started).Milliseconds())
	if err != nil {
		r.Failed++
		r.Errors[reason(err)]++
		r.LastFailed = max(r.LastFailed, at)
		if len(r.FailedAt) < 20 {
			r.FailedAt = append(r.FailedAt, at)
		}
		return
	}
	if r.arrivals = append(r.arrivals, time.Now()); len(r.arrivals) == 1 && r.first != nil {
		r.first()
	}
	if len(r.arrivals) == r.wanted {
		r.enough()
	}
	a := r.Answers[who]
	if a == nil {
		a = &answered{First: at}
		r.Answers[who] = a
	}
	a.Count++
	a.First = min(a.First, at)
	a.Last = max(a.Last, at)
}

// whoAnswers fetches a URL, and returns who labapp's web server says it is. It is not cancelled:
// requests that are under way count.
func whoAnswers(client *http.Client, url string) (string, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode/100 != 2 {
		return "", errors.New(response.Status)
	}
	who, _, _ := strings.Cut(strings.TrimSuffix(string(body), "\n"), " from=")
	return who, nil
}

// ownPort is what differs between the errors of two connections: "read tcp
// 10.1.1.1:43210->10.2.2.2:80: …".
var ownPort = regexp.MustCompile(`:\d+->`)

// reason is an error without what is different each time.
func reason(err error) string {
	var of *url.Error
	if errors.As(err, &of) {
		err = of.Err
	}
	var lookup *net.DNSError
	switch {
	case errors.As(err, &lookup) && lookup.IsNotFound:
		return "lookup: no such host"
	case errors.As(err, &lookup):
		return "lookup: " + cmp.Or(map[bool]string{true: "timeout"}[lookup.IsTimeout],
			ownPort.ReplaceAllString(lookup.Err, "->"))
	}
	return ownPort.ReplaceAllString(err.Error(), "->")
}
