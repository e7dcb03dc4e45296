// Package picture looks at images that anybody may have sent, and makes them fit what models take.
//
// An image is what its bytes say, whatever its name and its declared type are. Only PNG, JPEG, GIF and WebP count as images:
// no other format is decoded here. SVG is a document that can hold scripts, so it is none.
//
// The rule to remember: nothing is decoded before its header says that the result is small enough. A file of a few
// kilobytes may claim billions of pixels.
package picture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math"

	"golang.org/x/image/draw"
	"golang.org/x/image/webp"
)

// The limits of an image that [Fit] returns. Anthropic takes 5 MB an image and 32 MB a request, and shrinks what has more
// than 1568 pixels on a side or about 1.15 million in all. Gemini takes 20 MB a request, with all images in base64, and no
// GIF. OpenAI takes 50 MB a request. With these limits, 20 images have about 14 MB in base64.
const (
	// MaxSide and MaxPixels limit the pixels.
	MaxSide, MaxPixels = 1568, 1_150_000
	// MaxBytes limits the bytes.
	MaxBytes = 512 << 10
)

const (
	// maxSource limits the bytes of an image that is decoded, maxArea its pixels, and maxDecoded about how many bytes decoding
	// may take.
	maxSource, maxArea, maxDecoded = 20 << 20, 50_000_000, 160 << 20
	// maxSide limits the width and the height, because scaling takes memory for each column and each row, however few
	// pixels they have. It is that of JPEG and GIF.
	maxSide = 65_535
	// maxScans limits the parts of a JPEG, each of which may cost as much work as the whole image. Programs write up to 12.
	maxScans = 100
	// atOnce is how many images are decoded at the same time, because each takes memory.
	atOnce = 2
	// headerBytes is how much is read of a file to find out what it is. Cameras write up to 64 KiB before the size.
	headerBytes = 256 << 10
	// jpegQuality is how well a JPEG is kept at first. It is lowered until the image fits.
	jpegQuality = 85
)

// The media types of images.
const (
	PNG  = "image/png"
	JPEG = "image/jpeg"
	GIF  = "image/gif"
	WebP = "image/webp"
)

// Info has the facts in the header of an image.
type Info struct {
	// Type is the media type.
	Type string
	// Width and Height are in pixels, as the image is to be shown: after it was turned as its camera said.
	Width, Height int
}

// Image is an image that models take.
type Image struct {
	Info
	Data []byte
}

// The reasons why an image cannot be used. Their texts follow "it".
var (
	// ErrNone: the bytes are no image of a known type.
	ErrNone = errors.New("is no image that can be read")
	// ErrDamaged: the bytes begin as an image, and are not one.
	ErrDamaged = errors.New("is damaged")
	// ErrHuge: it would take too much memory.
	ErrHuge = errors.New("is too large to be shown")
)

// Fits returns the size that [Fit] gives an image of this size: it becomes smaller, and never larger.
func Fits(width, height int) (w, h int) {
	if width < 1 || height < 1 {
		return 1, 1
	}
	fw, fh := float64(width), float64(height)
	scale := min(1, MaxSide/fw, MaxSide/fh, math.Sqrt(MaxPixels/(fw*fh)))
	return max(int(fw*scale), 1), max(int(fh*scale), 1)
}

// source is an image before it is decoded.
type source struct {
	Info
	// orientation is how a camera was held, as Exif numbers it; 1 is upright.
	orientation int
}

// Look reads the header of an image. The error is [ErrNone] for what is not an image of a known type, [ErrDamaged], [ErrHuge]
// for one that [Fit] would refuse, or that of the reader.
func Look(r io.Reader) (Info, error) {
	head, err := io.ReadAll(io.LimitReader(r, headerBytes))
	if err != nil {
		return Info{}, err
	}
	s, err := look(head)
	return s.Info, err
}

func look(head []byte) (s source, err error) {
	defer func() {
		if recover() != nil { // a decoder that did not expect what it read
			err = ErrDamaged
		}
	}()
	var c image.Config
	r := bytes.NewReader(head)
	s.orientation = 1
	times := int64(1)
	switch {
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		s.Type = PNG
		c, err = png.DecodeConfig(r)
		if len(head) > 28 && head[28] == 1 {
			times = 2 // it is interlaced, and put together from parts
		}
	case bytes.HasPrefix(head, []byte("\xff\xd8\xff")):
		s.Type = JPEG
		c, err = jpeg.DecodeConfig(r)
		var progressive bool
		if s.orientation, progressive = exif(head); progressive {
			times = 5 // the coefficients, of four bytes each, and then the image
		}
	case bytes.HasPrefix(head, []byte("GIF87a")), bytes.HasPrefix(head, []byte("GIF89a")):
		s.Type = GIF
		c, err = gif.DecodeConfig(r)
	case len(head) >= 12 && string(head[:4]) == "RIFF" && string(head[8:12]) == "WEBP":
		s.Type = WebP
		c, err = webp.DecodeConfig(r)
		times = 4 // up to 65,535 tables of codes
	default:
		return source{}, ErrNone
	}
	if err != nil || c.Width < 1 || c.Height < 1 {
		return source{}, ErrDamaged
	}
	s.Width, s.Height = c.Width, c.Height
	if s.orientation >= 5 {
		s.Width, s.Height = s.Height, s.Width
	}
	if c.Width > maxSide || c.Height > maxSide || c.Width*c.Height > maxArea || int64(c.Width*c.Height)*bytesPerPixel(c.ColorModel)*times > maxDecoded {
		return s, ErrHuge
	}
	return s, nil
}

// bytesPerPixel returns how many bytes a decoded pixel has at most.
func bytesPerPixel(m color.Model) int64 {
	switch m {
	case color.GrayModel, color.AlphaModel:
		return 1
	case color.Gray16Model:
		return 2
	case color.YCbCrModel:
		return 3
	case color.RGBA64Model, color.NRGBA64Model:
		return 8
	}
	if _, isPalette := m.(color.Palette); isPalette {
		return 1
	}
	return 4
}

// slots has a place for each image that may be decoded at the same time.
var slots = make(chan struct{}, atOnce)

// Fit reads an image whole and returns it as models take it. One that fits already keeps its bytes; others become smaller,
// upright, and a PNG or a JPEG. Of an animation only the first picture is left. The result depends on the bytes alone.
// Few images are decoded at the same time; others wait, before they read, until ctx ends.
//
// The error is [ErrNone], [ErrDamaged], [ErrHuge], or that of ctx or the reader.
func Fit(ctx context.Context, r io.Reader) (Image, error) {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	case <-ctx.Done():
		return Image{}, ctx.Err()
	}
	data, err := io.ReadAll(io.LimitReader(r, maxSource+1))
	if err != nil {
		return Image{}, err
	}
	s, err := look(data[:min(len(data), headerBytes)])
	if err != nil {
		return Image{}, err
	}
	if len(data) > maxSource {
		return Image{}, ErrHuge
	}
	decoded, err := decode(s, data)
	if err != nil {
		return Image{}, err
	}
	w, h := Fits(s.Width, s.Height)
	if w == s.Width && h == s.Height && len(data) <= MaxBytes && s.orientation == 1 && s.Type != GIF {
		return Image{s.Info, data}, nil
	}
	return encode(upright(scaled(decoded, s, w, h), s.orientation), s.Type != JPEG)
}

// decode decodes an image whose header was looked at.
func decode(s source, data []byte) (m image.Image, err error) {
	defer func() {
		if recover() != nil {
			err = ErrDamaged
		}
	}()
	r := bytes.NewReader(data)
	switch s.Type {
	case PNG:
		m, err = png.Decode(r)
	case JPEG:
		if bytes.Count(data, []byte("\xff\xda")) > maxScans {
			return nil, ErrHuge
		}
		m, err = jpeg.Decode(r)
	case GIF:
		if m, err = gif.Decode(r); err == nil {
			return onCanvas(m, s)
		}
	case WebP:
		if int64(binary.LittleEndian.Uint32(data[4:]))+8 > int64(len(data)) {
			return nil, ErrDamaged // its decoder would make room for as much as it claims
		}
		m, err = webp.Decode(r)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return m, nil
}

// onCanvas returns an image of the size that its header says, which the first picture of a GIF may not fill.
func onCanvas(m image.Image, s source) (image.Image, error) {
	whole := image.Rect(0, 0, s.Width, s.Height)
	if m.Bounds() == whole {
		return m, nil
	}
	if 4*s.Width*s.Height > maxDecoded {
		return nil, ErrHuge
	}
	to := image.NewRGBA(whole)
	draw.Draw(to, m.Bounds(), m, m.Bounds().Min, draw.Src)
	return to, nil
}

// scaled returns an image in the size w × h that it has when it is upright. It is halved as often as possible first, because
// a good scaler takes memory for each row of its source.
func scaled(m image.Image, s source, w, h int) *image.RGBA {
	if s.orientation >= 5 {
		w, h = h, w
	}
	for b := m.Bounds(); b.Dx() >= 2*w && b.Dy() >= 2*h; b = m.Bounds() {
		half := image.NewRGBA(image.Rect(0, 0, b.Dx()/2, b.Dy()/2))
		draw.ApproxBiLinear.Scale(half, half.Rect, m, b, draw.Src, nil)
		m = half
	}
	to := image.NewRGBA(image.Rect(0, 0, w, h))
	if b := m.Bounds(); b.Dx() == w && b.Dy() == h {
		draw.Draw(to, to.Rect, m, b.Min, draw.Src)
	} else {
		draw.CatmullRom.Scale(to, to.Rect, m, b, draw.Src, nil)
	}
	return to
}

// upright turns and mirrors an image as Exif's orientation says.
func upright(m *image.RGBA, orientation int) *image.RGBA {
	if orientation <= 1 || orientation > 8 {
		return m
	}
	w, h := m.Rect.Dx(), m.Rect.Dy()
	to := image.NewRGBA(image.Rect(0, 0, w, h))
	if orientation >= 5 {
		to = image.NewRGBA(image.Rect(0, 0, h, w))
	}
	for y := range h {
		for x := range w {
			tx, ty := x, y
			switch orientation {
			case 2:
				tx = w - 1 - x
			case 3:
				tx, ty = w-1-x, h-1-y
			case 4:
				ty = h - 1 - y
			case 5:
				tx, ty = y, x
			case 6:
				tx, ty = h-1-y, x
			case 7:
				tx, ty = h-1-y, w-1-x
			case 8:
				tx, ty = y, w-1-x
			}
			copy(to.Pix[to.PixOffset(tx, ty):][:4], m.Pix[m.PixOffset(x, y):][:4])
		}
	}
	return to
}

// encode writes an image as a PNG if that is wanted and small enough, and otherwise as a JPEG on white.
func encode(m *image.RGBA, asPNG bool) (Image, error) {
	var to bytes.Buffer
	made := func(kind string) (Image, error) {
		return Image{Info{kind, m.Rect.Dx(), m.Rect.Dy()}, to.Bytes()}, nil
	}
	if asPNG {
		if err := png.Encode(&to, m); err != nil {
			return Image{}, err
		}
		if to.Len() <= MaxBytes {
			return made(PNG)
		}
	}
	flat := image.NewRGBA(m.Rect)
	draw.Draw(flat, flat.Rect, image.White, image.Point{}, draw.Src)
	draw.Draw(flat, flat.Rect, m, m.Rect.Min, draw.Over)
	for quality := jpegQuality; quality > 0; quality -= 20 {
		to.Reset()
		if err := jpeg.Encode(&to, flat, &jpeg.Options{Quality: quality}); err != nil {
			return Image{}, err
		}
		if to.Len() <= MaxBytes {
			return made(JPEG)
		}
	}
	return Image{}, ErrHuge
}

// exif reads from the head of a JPEG how its camera was held, and whether it is progressive. Where it cannot, the image is
// upright.
func exif(head []byte) (orientation int, progressive bool) {
	orientation = 1
	for at := 2; at+4 <= len(head) && head[at] == 0xff; {
		marker, size := head[at+1], int(binary.BigEndian.Uint16(head[at+2:]))
		switch {
		case marker == 0xff: // a filler
			at++
			continue
		case marker == 0xda, size < 2: // the image begins
			return orientation, progressive
		case marker == 0xc2:
			return orientation, true
		case marker == 0xe1 && at+2+size <= len(head):
			if tiff, ok := bytes.CutPrefix(head[at+4:at+2+size], []byte("Exif\x00\x00")); ok {
				orientation = orientationOf(tiff)
			}
		}
		at += 2 + size
	}
	return orientation, progressive
}

// orientationOf finds the orientation in the first directory of Exif's data.
func orientationOf(tiff []byte) int {
	if len(tiff) < 8 {
		return 1
	}
	var order binary.ByteOrder = binary.LittleEndian
	if string(tiff[:2]) == "MM" {
		order = binary.BigEndian
	}
	at := int64(order.Uint32(tiff[4:]))
	if at+2 > int64(len(tiff)) {
		return 1
	}
	n := int64(order.Uint16(tiff[at:]))
	for field := at + 2; n > 0 && field+12 <= int64(len(tiff)); n, field = n-1, field+12 {
		if order.Uint16(tiff[field:]) == 0x0112 {
			if found := int(order.Uint16(tiff[field+8:])); found >= 1 && found <= 8 {
				return found
			}
			return 1
		}
	}
	return 1
}
