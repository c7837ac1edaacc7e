package node

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"time"
)

// nameServer stands for the name server of the network that a machine is in: CoreDNS asks it for
// all names outside the cluster, and there are none. It answers until the node ends.
func nameServer(address string) error {
	listen := net.JoinHostPort(address, "53")
	udp, err := net.ListenPacket("udp", listen)
	if err != nil {
		return err
	}
	tcp, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(err, udp.Close())
	}
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := udp.ReadFrom(buf)
			if err == nil && noSuchName(buf[:n]) {
				_, _ = udp.WriteTo(buf[:n], from) // who gets no answer asks again
			}
		}
	}()
	go func() {
		for {
			if conn, err := tcp.Accept(); err == nil {
				go answerTCP(conn)
			} else {
				time.Sleep(restartDelay)
			}
		}
	}()
	return nil
}

func answerTCP(conn net.Conn) {
	defer conn.Close()
	var size [2]byte
	for {
		if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
			return
		}
		if _, err := io.ReadFull(conn, size[:]); err != nil {
			return
		}
		message := make([]byte, binary.BigEndian.Uint16(size[:]))
		if _, err := io.ReadFull(conn, message); err != nil || !noSuchName(message) {
			return
		}
		if _, err := conn.Write(append(size[:], message...)); err != nil {
			return
		}
	}
}

// noSuchName turns a DNS query into its answer, NXDOMAIN. It reports false if the message is no
// query.
func noSuchName(message []byte) bool {
	const header, response, truncated, recursionAvailable, nxdomain = 12, 0x80, 0x02, 0x80, 3
	if len(message) < header || message[2]&response != 0 {
		return false
	}
	message[2] = message[2]&^truncated | response
	message[3] = recursionAvailable | nxdomain
	return true
}
