//===- PrefillAttrs.cpp - attributes
//----------------------------------------===//
#include "mlir/IR/DialectImplementation.h"
#include "prefill/Dialect/Prefill/IR/Prefill.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::prefill;

#define GET_ATTRDEF_CLASSES
#include "prefill/Dialect/Prefill/IR/PrefillAttrs.cpp.inc"

void PrefillDialect::registerAttrs() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "prefill/Dialect/Prefill/IR/PrefillAttrs.cpp.inc"
      >();
}

LogicalResult RopeAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               APFloat thetaValue, int64_t rotaryDim, bool,
                               RopeScaling scaling, APFloat factorValue,
                               APFloat lowValue, APFloat highValue,
                               int64_t originalMaxPosition) {
  double theta = thetaValue.convertToDouble(),
         factor = factorValue.convertToDouble();
  double lowFreqFactor = lowValue.convertToDouble(),
         highFreqFactor = highValue.convertToDouble();
  if (!(theta > 0))
    return emitError() << "rope theta is " << theta
                       << ", expected a positive number";
  if (rotaryDim < 2 || rotaryDim % 2)
    return emitError() << "rope rotary_dim is " << rotaryDim
                       << ", expected an even number of at least 2";
  if (scaling != RopeScaling::None && !(factor > 0))
    return emitError() << "rope scaling factor is " << factor
                       << ", expected a positive number";
  if (scaling == RopeScaling::Llama3) {
    if (!(lowFreqFactor > 0) || !(highFreqFactor > lowFreqFactor))
      return emitError() << "rope low_freq_factor is " << lowFreqFactor
                         << " and high_freq_factor " << highFreqFactor
                         << ", expected 0 < low_freq_factor < high_freq_factor";
    if (originalMaxPosition < 1)
      return emitError() << "rope original_max_position is "
                         << originalMaxPosition << ", expected at least 1";
  }
  return success();
}

/// `name = value`, preceded by a comma unless it is the first.
static ParseResult parseKeyword(AsmParser &parser, StringRef name, bool first) {
  if (!first && parser.parseComma())
    return failure();
  return failure(parser.parseKeyword(name) || parser.parseEqual());
}

Attribute RopeAttr::parse(AsmParser &parser, Type) {
  double theta = 0, factor = 1, low = 1, high = 1;
  int64_t rotaryDim = 0, original = 0;
  bool interleaved = false;
  RopeScaling scaling = RopeScaling::None;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parseKeyword(parser, "theta", true) ||
      parser.parseFloat(theta) || parseKeyword(parser, "rotary_dim", false) ||
      parser.parseInteger(rotaryDim))
    return {};
  while (succeeded(parser.parseOptionalComma())) {
    if (succeeded(parser.parseOptionalKeyword("interleaved"))) {
      interleaved = true;
      continue;
    }
    StringRef kind;
    if (parser.parseKeyword("scaling", " or 'interleaved'") ||
        parser.parseEqual() || parser.parseKeyword(&kind))
      return {};
    std::optional<RopeScaling> parsed = symbolizeRopeScaling(kind);
    if (!parsed) {
      parser.emitError(loc) << "unknown rope scaling '" << kind
                            << "', expected none, linear or llama3";
      return {};
    }
    scaling = *parsed;
    if (scaling == RopeScaling::None)
      continue;
    if (parser.parseLParen() || parseKeyword(parser, "factor", true) ||
        parser.parseFloat(factor))
      return {};
    if (scaling == RopeScaling::Llama3 &&
        (parseKeyword(parser, "low_freq_factor", false) ||
         parser.parseFloat(low) ||
         parseKeyword(parser, "high_freq_factor", false) ||
         parser.parseFloat(high) ||
         parseKeyword(parser, "original_max_position", false) ||
         parser.parseInteger(original)))
      return {};
    if (parser.parseRParen())
      return {};
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<RopeAttr>(
      loc, parser.getContext(), APFloat(theta), rotaryDim, interleaved, scaling,
      APFloat(factor), APFloat(low), APFloat(high), original);
}

void RopeAttr::print(AsmPrinter &printer) const {
  auto number = [&](double value) { printer.printFloat(APFloat(value)); };
  printer << "<theta = ";
  number(getTheta());
  printer << ", rotary_dim = " << getRotaryDim();
  if (getInterleaved())
    printer << ", interleaved";
  if (getScaling() != RopeScaling::None) {
    printer << ", scaling = " << stringifyRopeScaling(getScaling())
            << "(factor = ";
    number(getFactor());
    if (getScaling() == RopeScaling::Llama3) {
      printer << ", low_freq_factor = ";
      number(getLowFreqFactor());
      printer << ", high_freq_factor = ";
      number(getHighFreqFactor());
      printer << ", original_max_position = " << getOriginalMaxPosition();
    }
    printer << ")";
  }
  printer << ">";
}
