package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// echoPort is the port RFC 862 gave to echo.
const echoPort = ":7"

// whoami names pod, node (from the downward API, in NODE) and addresses.
func whoami() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	var ips []string
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		ips = []string{"?"}
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLoopback() && n.IP.To4() != nil {
			ips = append(ips, n.IP.String())
		}
	}
	return fmt.Sprintf("pod=%s node=%s ips=%s", host, os.Getenv("NODE"), strings.Join(ips, ","))
}

func web(ctx context.Context, args []string) error {
	listen := ":8080"
	if len(args) > 0 {
		listen = args[0]
	}
	// On the host network port 7 may be taken by another of us: the web server is what counts.
	for _, serve := range []func(context.Context) error{echoTCP, echoUDP} {
		go func() {
			if err := serve(ctx); err != nil {
				log.Printf("no echo: %v", err)
			}
		}()
	}
	log.Printf("labapp on %s, %s", listen, whoami())
	server := &http.Server{
		Addr:              listen,
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				log.Printf("%s %s", r.RemoteAddr, r.URL)
			}
			// A connection for each request, so that a Service's choice is made for each.
			w.Header().Set("Connection", "close")
			fmt.Fprintf(w, "%s from=%s\n", whoami(), r.RemoteAddr)
		}),
	}
	go func() {
		<-ctx.Done()
		server.Close()
	}()
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func echoTCP(ctx context.Context) error {
	listener, err := net.Listen("tcp", echoPort)
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { listener.Close() })
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			io.Copy(conn, conn) // ends when the client has enough
		}()
	}
}

func echoUDP(ctx context.Context) error {
	conn, err := net.ListenUDP("udp", udpAddr(echoPort))
	if err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { conn.Close() })
	holdMore(conn)
	buf := make([]byte, 65536)
	for {
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return err
		}
		if _, err := conn.WriteToUDPAddrPort(buf[:n], from); err != nil {
			log.Printf("answering %s: %v", from, err)
		}
	}
}

// holdMore gives a socket as much room as the kernel allows. Programs of a busy machine may stand
// still for a second: what arrives meanwhile must not count as lost on the way.
func holdMore(conn *net.UDPConn) {
	if err := conn.SetReadBuffer(1 << 20); err != nil {
		log.Print(err)
	}
}

func udpAddr(listen string) *net.UDPAddr {
	port, err := strconv.Atoi(strings.TrimPrefix(listen, ":"))
	if err != nil {
		panic(err) // a constant of ours
	}
	return &net.UDPAddr{Port: port}
}
