package natdiscovery

import (
	"crypto/hmac"
	"crypto/sha256"
	"net/netip"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of SubmarinerNATDiscoveryMessage and of the messages in it. Numbers from 100
// are our additions.
const (
	fieldVersion  = 1 // int32
	fieldRequest  = 2
	fieldResponse = 3
	fieldPadding  = 100 // bytes
	fieldMAC      = 101 // bytes; always last, computed over all previous bytes

	fieldNumber   = 1 // uint64, of Request and Response
	fieldSender   = 2 // of Request
	fieldReceiver = 3
	fieldSrc      = 4
	fieldDst      = 5
	fieldCookie   = 101 // uint64, of Request and Response

	fieldType           = 2 // enum, of Response
	fieldAnswerSender   = 3
	fieldAnswerReceiver = 4
	fieldSrcIPNAT       = 5 // bool
	fieldSrcPortNAT     = 6
	fieldDstIPNAT       = 7
	fieldReceivedSrc    = 8
	fieldSize           = 100 // uint32

	fieldCluster = 1 // string, of EndpointDetails
	fieldCable   = 2

	fieldIP   = 1 // string, of IPPortPair
	fieldPort = 2 // int32
)

const (
	version = 1
	// maxName is the maximum length of cluster and cable names, in bytes: a cable name is
	// part of the name of a Kubernetes object, which has at most 253 (RFC 1123).
	maxName = 253
	// macSize is the size of the authentication code, in bytes: HMAC-SHA256 truncated to half
	// its length (RFC 2104, section 5), to keep requests small.
	macSize = 16
	// macField is the size of the field with the code: two bytes of tag, one of length.
	macField = 3 + macSize
	// paddingField is the overhead of padding: two bytes of tag, three of length.
	paddingField = 5
)

// code returns the authentication code of body.
func code(body []byte, key Key) []byte {
	h := hmac.New(sha256.New, key[:])
	h.Write(body) // never fails
	return h.Sum(nil)[:macSize]
}

// Encode returns the request as a message. It pads the message to size bytes, if it is
// smaller, and authenticates it unless key is zero.
func (r Request) Encode(size int, key Key) []byte {
	var b []byte
	b = appendNumber(b, fieldNumber, r.Number)
	b = appendMessage(b, fieldSender, r.Sender.encode())
	b = appendMessage(b, fieldReceiver, r.Receiver.encode())
	b = appendMessage(b, fieldSrc, encodeAddr(r.Src))
	b = appendMessage(b, fieldDst, encodeAddr(r.Dst))
	b = appendNumber(b, fieldCookie, r.Cookie)
	return seal(appendMessage(appendNumber(nil, fieldVersion, version), fieldRequest, b), size, key)
}

// Encode returns the response as a message, authenticated unless key is zero.
func (r Response) Encode(key Key) []byte {
	var b []byte
	b = appendNumber(b, fieldNumber, r.Number)
	b = appendNumber(b, fieldType, uint64(r.Type))
	b = appendMessage(b, fieldAnswerSender, r.Sender.encode())
	b = appendMessage(b, fieldAnswerReceiver, r.Receiver.encode())
	b = appendNumber(b, fieldSrcIPNAT, protowire.EncodeBool(r.SrcIPNAT))
	b = appendNumber(b, fieldSrcPortNAT, protowire.EncodeBool(r.SrcPortNAT))
	b = appendNumber(b, fieldDstIPNAT, protowire.EncodeBool(r.DstIPNAT))
	b = appendMessage(b, fieldReceivedSrc, encodeAddr(r.ReceivedSrc))
	b = appendNumber(b, fieldSize, uint64(r.Size))
	b = appendNumber(b, fieldCookie, r.Cookie)
	return seal(appendMessage(nil, fieldResponse, b), 0, key)
}

// seal adds padding up to size bytes and, unless key is zero, the authentication code.
func seal(b []byte, size int, key Key) []byte {
	if key != (Key{}) {
		size -= macField
	}
	// The length always takes three bytes, so that every size is possible.
	if n := size - len(b) - paddingField; n > 0 {
		b = protowire.AppendTag(b, fieldPadding, protowire.BytesType)
		b = append(b, byte(n)|0x80, byte(n>>7)|0x80, byte(n>>14))
		b = append(b, make([]byte, n)...)
	}
	if key == (Key{}) {
		return b
	}
	mac := code(b, key)
	return protowire.AppendBytes(protowire.AppendTag(b, fieldMAC, protowire.BytesType), mac)
}

// appendNumber appends a number, unless it is 0, the value of a missing field.
func appendNumber(b []byte, field protowire.Number, n uint64) []byte {
	if n == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), n)
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

// appendMessage appends a message, even if it is empty: Submariner requires the field.
func appendMessage(b []byte, field protowire.Number, m []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), m)
}

func (e Endpoint) encode() []byte {
	return appendText(appendText(nil, fieldCluster, e.Cluster), fieldCable, e.Cable)
}

func encodeAddr(a netip.AddrPort) []byte {
	var b []byte
	if a.Addr().IsValid() {
		b = appendText(b, fieldIP, a.Addr().String())
	}
	return appendNumber(b, fieldPort, uint64(a.Port()))
}
