package natdiscovery

import (
	"crypto/hmac"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Message is a received Request or Response. Exactly one of the two is not nil.
type Message struct {
	Request  *Request
	Response *Response
	body     []byte // the bytes that mac authenticates
	mac      []byte
}

// Authentic reports whether the sender of the message has the key.
func (m Message) Authentic(key Key) bool {
	return key != Key{} && len(m.mac) == macSize && hmac.Equal(m.mac, code(m.body, key))
}

// Parse parses an untrusted message. Only Authentic refers to b after Parse returns.
func Parse(b []byte) (Message, error) {
	var m Message
	if len(b) > MaxSize {
		return m, fmt.Errorf("message of %d bytes: at most %d fit into a packet", len(b), MaxSize)
	}
	var request, response *field
	end := 0
	err := fields(b, func(f field) error {
		var err error
		end += f.size
		switch f.number {
		case fieldVersion:
			_, err = f.varint(1<<31 - 1)
		case fieldRequest:
			request = &f
		case fieldResponse:
			response = &f
		case fieldMAC:
			if end != len(b) {
				return errors.New("data after the authentication code")
			}
			m.body = b[:end-f.size]
			m.mac, err = f.bytes()
		}
		return err
	})
	if err != nil {
		return Message{}, err
	}
	switch {
	case (request == nil) == (response == nil):
		return Message{}, errors.New("a message must be either a request or a response")
	case request != nil:
		m.Request, err = request.request()
	default:
		m.Response, err = response.response()
	}
	if err != nil {
		return Message{}, err
	}
	return m, nil
}

func (f field) request() (*Request, error) {
	r := &Request{}
	return r, f.fields(func(f field) (err error) {
		switch f.number {
		case fieldNumber:
			r.Number, err = f.varint(1<<64 - 1)
		case fieldSender:
			r.Sender, err = f.endpoint()
		case fieldReceiver:
			r.Receiver, err = f.endpoint()
		case fieldSrc:
			r.Src, err = f.addr()
		case fieldDst:
			r.Dst, err = f.addr()
		case fieldCookie:
			r.Cookie, err = f.varint(NoCookie)
		}
		return err
	})
}

func (f field) response() (*Response, error) {
	r := &Response{}
	return r, f.fields(func(f field) (err error) {
		var n uint64
		switch f.number {
		case fieldNumber:
			r.Number, err = f.varint(1<<64 - 1)
		case fieldType:
			n, err = f.varint(uint64(Malformed))
			r.Type = Type(n)
		case fieldAnswerSender:
			r.Sender, err = f.endpoint()
		case fieldAnswerReceiver:
			r.Receiver, err = f.endpoint()
		case fieldSrcIPNAT:
			r.SrcIPNAT, err = f.bool()
		case fieldSrcPortNAT:
			r.SrcPortNAT, err = f.bool()
		case fieldDstIPNAT:
			r.DstIPNAT, err = f.bool()
		case fieldReceivedSrc:
			r.ReceivedSrc, err = f.addr()
		case fieldSize:
			n, err = f.varint(MaxSize)
			r.Size = int(n)
		case fieldCookie:
			r.Cookie, err = f.varint(NoCookie)
		}
		return err
	})
}

// field is one field of a message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  []byte // encoded
	size   int    // including its tag, in bytes
}

// maxFields is the maximum number of fields of a message: ten, and room for later versions.
const maxFields = 32

// fields calls f for every field of a message. It returns an error if a field occurs twice:
// no sender repeats fields, and protobuf would merge them.
func fields(b []byte, f func(field) error) error {
	var seen []protowire.Number
	for len(b) > 0 {
		number, kind, tag := protowire.ConsumeTag(b)
		if tag < 0 {
			return fmt.Errorf("reading a field's tag: %w", protowire.ParseError(tag))
		}
		n := protowire.ConsumeFieldValue(number, kind, b[tag:])
		switch {
		case n < 0:
			return fmt.Errorf("reading field %d: %w", number, protowire.ParseError(n))
		case slices.Contains(seen, number):
			return fmt.Errorf("field %d occurs twice", number)
		case len(seen) == maxFields:
			return fmt.Errorf("more than %d fields", maxFields)
		}
		seen = append(seen, number)
		if err := f(field{number, kind, b[tag : tag+n], tag + n}); err != nil {
			return fmt.Errorf("reading field %d: %w", number, err)
		}
		b = b[tag+n:]
	}
	return nil
}

// fields calls each for every field of the message in f.
func (f field) fields(each func(field) error) error {
	b, err := f.bytes()
	if err != nil {
		return err
	}
	return fields(b, each)
}

func (f field) varint(most uint64) (uint64, error) {
	if f.kind != protowire.VarintType {
		return 0, errors.New("not a number")
	}
	n, _ := protowire.ConsumeVarint(f.value) // fields has consumed it before
	if n > most {
		return 0, fmt.Errorf("%d is more than %d", n, most)
	}
	return n, nil
}

func (f field) bool() (bool, error) {
	n, err := f.varint(1)
	return n == 1, err
}

func (f field) bytes() ([]byte, error) {
	if f.kind != protowire.BytesType {
		return nil, errors.New("neither a message nor bytes")
	}
	b, _ := protowire.ConsumeBytes(f.value) // fields has consumed it before
	return b, nil
}

func (f field) text(most int) (string, error) {
	b, err := f.bytes()
	switch {
	case err != nil:
		return "", err
	case len(b) > most:
		return "", fmt.Errorf("text of %d bytes: at most %d are accepted", len(b), most)
	case !utf8.Valid(b):
		return "", errors.New("not UTF-8")
	}
	return string(b), nil
}

func (f field) endpoint() (Endpoint, error) {
	var e Endpoint
	err := f.fields(func(f field) (err error) {
		switch f.number {
		case fieldCluster:
			e.Cluster, err = f.text(maxName)
		case fieldCable:
			e.Cable, err = f.text(maxName)
		}
		return err
	})
	return e, err
}

func (f field) addr() (netip.AddrPort, error) {
	var ip netip.Addr
	var port uint64
	err := f.fields(func(f field) (err error) {
		switch f.number {
		case fieldIP:
			ip, err = f.ip()
		case fieldPort:
			port, err = f.varint(65535)
		}
		return err
	})
	return netip.AddrPortFrom(ip, uint16(port)), err
}

// ip parses an IPv4 address in text form; the zero Addr if the text is empty.
func (f field) ip() (netip.Addr, error) {
	text, err := f.text(len("255.255.255.255"))
	if err != nil || text == "" {
		return netip.Addr{}, err
	}
	ip, err := netip.ParseAddr(text)
	if err != nil || !ip.Is4() {
		return netip.Addr{}, fmt.Errorf("%q is not an IPv4 address", text)
	}
	return ip, nil
}
