package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const defaultTimeout = 5 * time.Second

func timeoutOf(values map[string]string) (time.Duration, error) {
	text, ok := values["timeout"]
	if !ok {
		return defaultTimeout, nil
	}
	if seconds, err := strconv.Atoi(text); err == nil {
		return time.Duration(seconds) * time.Second, nil
	}
	return time.ParseDuration(text)
}

func number(values map[string]string, name string, otherwise int) (int, error) {
	text, ok := values[name]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, fmt.Errorf("option -%s %q: a number above 0 is wanted", name, text)
	}
	return n, nil
}

func get(ctx context.Context, args []string) error {
	rest, values, err := split(args, "n", "timeout", "pause")
	if err != nil {
		return err
	}
	if len(rest) != 1 {
		return errors.New("get wants one URL")
	}
	timeout, err := timeoutOf(values)
	if err != nil {
		return err
	}
	times, err := number(values, "n", 1)
	if err != nil {
		return err
	}
	pause, err := time.ParseDuration(cmp.Or(values["pause"], "0"))
	if err != nil {
		return err
	}
	client := http.Client{Timeout: timeout, Transport: &http.Transport{DisableKeepAlives: true}}
	var failed int
	for range times {
		if err := getOnce(ctx, client, rest[0]); err != nil {
			fmt.Println("ERR", err)
			failed++
		}
		time.Sleep(pause)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d requests failed", failed, times)
	}
	return nil
}

func getOnce(ctx context.Context, client http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = errors.New(response.Status)
	}
	fmt.Println(strings.TrimSuffix(string(body), "\n"))
	return err
}

func tcp(ctx context.Context, args []string) error { return echo(ctx, "tcp", args) }
func udp(ctx context.Context, args []string) error { return echo(ctx, "udp", args) }

// echo sends bytes nobody could guess, in each size, and wants them back.
func echo(ctx context.Context, network string, args []string) error {
	rest, values, err := split(args, "timeout", "tries")
	if err != nil {
		return err
	}
	if len(rest) < 2 {
		return fmt.Errorf("%s wants HOST:PORT and SIZE", network)
	}
	timeout, err := timeoutOf(values)
	if err != nil {
		return err
	}
	tries, err := number(values, "tries", 1)
	if err != nil {
		return err
	}
	sizes, err := sizesOf(rest[1:])
	if err != nil {
		return err
	}
	for _, size := range sizes {
		for try := range tries {
			if err = echoOnce(ctx, network, rest[0], size, timeout); err == nil {
				break
			}
			if try < tries-1 {
				fmt.Printf("again: size=%d: %v\n", size, err)
			}
		}
		if err != nil {
			return fmt.Errorf("size=%d: %w", size, err)
		}
	}
	return nil
}

func sizesOf(args []string) (sizes []int, err error) {
	for _, arg := range args {
		size, err := strconv.Atoi(arg)
		if err != nil || size < 1 {
			return nil, fmt.Errorf("size %q: a number of bytes is wanted", arg)
		}
		sizes = append(sizes, size)
	}
	return sizes, nil
}

func echoOnce(ctx context.Context, network, to string, size int, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, to)
	if err != nil {
		return err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	sent := make([]byte, size)
	got := make([]byte, size)
	if _, err := rand.Read(sent); err != nil {
		return err
	}
	started := time.Now()
	writing := make(chan error, 1)
	go func() { // beside reading: an echo stops reading when nobody reads what it says
		_, err := conn.Write(sent)
		writing <- err
	}()
	n, err := io.ReadFull(conn, got)
	if err != nil {
		return fmt.Errorf("%d of %d bytes came back: %w", n, size, err)
	}
	if err := <-writing; err != nil {
		return err
	}
	if !bytes.Equal(sent, got) {
		return fmt.Errorf("%d bytes came back, but not those that were sent", size)
	}
	fmt.Printf("OK %s %s size=%d time=%s from=%s\n", network, conn.RemoteAddr(), size,
		time.Since(started).Round(time.Microsecond), conn.LocalAddr())
	return nil
}
